"""What may be posted, by the bounds that the bodies are read with."""

from __future__ import annotations

from collections.abc import Mapping

from services.gateway.core.openai import chats, sampling, texts, tools
from services.gateway.core.openapi.schemas import (
    NULL,
    TEXT,
    Schema,
    any_of,
    array,
    integer,
    number,
    one_of,
    record,
    ref,
    where,
    with_field,
)

_FLAG: Schema = {"type": "boolean"}
_OBJECT: Schema = {"type": "object"}
_SOME_TEXT: Schema = {"type": "string", "minLength": 1}
_STOP: Schema = {**_SOME_TEXT, "maxLength": sampling.LONGEST_STOP_CHARS}
_NAME: Schema = {"type": "string", "pattern": tools.NAME_PATTERN}
_NAMED_FUNCTION = record({"type": one_of("function"), "function": record({"name": _NAME})})
_TOKEN_IDS = array(integer(0, sampling.LARGEST_TOKENS), minItems=1)

_SHARED: dict[str, Schema] = {
    "n": integer(1, sampling.MOST_CHOICES),
    "max_tokens": integer(1),
    "temperature": number(0, 2),
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "stop": any_of(_STOP, array(_STOP, maxItems=sampling.MOST_STOPS)),
    "seed": integer(-(1 << 63), (1 << 63) - 1),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": sampling.TOKEN_ID_PATTERN},
        "additionalProperties": number(-sampling.LARGEST_BIAS, sampling.LARGEST_BIAS),
        "maxProperties": sampling.MOST_BIASED,
    },
    "stream": _FLAG,
    "stream_options": record({}, {"include_usage": _FLAG}),
    "user": TEXT,
}
_STREAM_OPTIONS_NEED_STREAM = any_of(with_field("stream", one_of(True)), where(stream_options=NULL))


def schemas() -> dict[str, Schema]:
    return {
        "ChatRequest": _chat(),
        "CompletionRequest": _completion(),
        "Message": _message(),
        "Tool": record({"type": one_of("function"), "function": _function()}),
        "ResponseFormat": _format(),
    }


def _chat() -> Schema:
    body = record(
        {"model": _SOME_TEXT, "messages": array(ref("Message"), minItems=1)},
        {
            **_SHARED,
            "max_completion_tokens": integer(1),
            "logprobs": _FLAG,
            "top_logprobs": integer(0, chats.MOST_TOP_LOGPROBS),
            "response_format": ref("ResponseFormat"),
            "tools": array(ref("Tool"), maxItems=tools.MOST_TOOLS),
            "tool_choice": any_of(one_of("none", "auto", "required"), _NAMED_FUNCTION),
            "parallel_tool_calls": _FLAG,
            **_harmless(chats.NOT_SERVED),
        },
    )
    body["allOf"] = [
        _STREAM_OPTIONS_NEED_STREAM,
        any_of(with_field("logprobs", one_of(True)), where(top_logprobs=one_of(0, None))),
        any_of(with_field("tools", {"type": "array", "minItems": 1}), where(tool_choice=one_of("none", "auto", None))),
        any_of(
            where(parallel_tool_calls=one_of(True, None)),
            with_field("tool_choice", any_of(one_of("none", "required"), _NAMED_FUNCTION)),
        ),
        any_of(
            where(response_format=any_of(NULL, record({"type": one_of("text")}))),
            where(tools=one_of([], None)),
            with_field("tool_choice", one_of("none")),
        ),
    ]
    return body


def _completion() -> Schema:
    several = array(any_of(_SOME_TEXT, _TOKEN_IDS), minItems=1, maxItems=texts.MOST_ANSWERS)
    prompts = any_of(_SOME_TEXT, _TOKEN_IDS, several)
    echoed = any_of(_SOME_TEXT, array(_SOME_TEXT))
    body = record(
        {"model": _SOME_TEXT, "prompt": prompts},
        {
            **_SHARED,
            "best_of": integer(1, texts.MOST_BEST_OF),
            "echo": _FLAG,
            "logprobs": integer(0, texts.MOST_TOP_LOGPROBS),
            **_harmless(texts.NOT_SERVED),
        },
    )
    body["allOf"] = [
        _STREAM_OPTIONS_NEED_STREAM,
        any_of(where(echo=one_of(False, None)), where(prompt=echoed, logprobs=NULL)),
    ]
    return body


def _message() -> Schema:
    part = record({"type": one_of("text"), "text": TEXT})
    content = any_of(TEXT, array(part))
    spoken = {"name": TEXT}
    function = record({"name": TEXT, "arguments": TEXT})
    call = record({"id": TEXT, "function": function}, {"type": one_of("function")})
    return any_of(
        record(
            {"role": one_of("system", "developer", "user"), "content": content},
            {**spoken, "tool_calls": NULL, "function_call": NULL},
        ),
        record(
            {"role": one_of("assistant"), "content": content},
            {**spoken, "tool_calls": array(call), "function_call": NULL},
        ),
        record(
            {"role": one_of("assistant"), "tool_calls": array(call, minItems=1)},
            {**spoken, "content": content, "function_call": NULL},
        ),
        record(
            {"role": one_of("tool"), "content": content, "tool_call_id": TEXT},
            {**spoken, "tool_calls": NULL, "function_call": NULL},
        ),
    )


def _function() -> Schema:
    return record({"name": _NAME}, {"description": TEXT, "parameters": _OBJECT})


def _format() -> Schema:
    described = record({"name": TEXT, "schema": _OBJECT}, {"strict": _FLAG})
    return any_of(
        record({"type": one_of("text", "json_object")}),
        record({"type": one_of("json_schema"), "json_schema": described}),
    )


def _harmless(not_served: Mapping[str, tuple[object, ...]]) -> dict[str, Schema]:
    """What is not served, with the values that ask for nothing."""
    return {name: one_of(*values) for name, values in not_served.items()}
