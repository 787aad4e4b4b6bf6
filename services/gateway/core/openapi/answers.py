"""What comes back."""

from __future__ import annotations

from services.gateway.core.openapi.schemas import (
    TEXT,
    Schema,
    any_of,
    array,
    integer,
    nullable,
    number,
    one_of,
    record,
    ref,
)

_REASON = one_of("stop", "length", "tool_calls")
_TEXT_REASON = one_of("stop", "length")


def schemas() -> dict[str, Schema]:
    return {
        "ChatAnswer": _chat(),
        "ChatChunk": _chat_chunk(),
        "CompletionAnswer": _completion(),
        "Usage": _usage(),
        "ToolCall": record({"id": TEXT, "type": one_of("function"), "function": _called()}),
        "TokenLogprob": _token(top=True),
        "TextLogprobs": _text_logprobs(),
        "ModelList": record({"object": one_of("list"), "data": array(ref("Model"))}),
        "Model": _model(),
        "Error": _error(),
    }


def _headed(kind: str, choice: Schema) -> dict[str, Schema]:
    choices = array(choice)
    return {"id": TEXT, "object": one_of(kind), "created": integer(), "model": TEXT, "choices": choices}


def _chat() -> Schema:
    message = record(
        {"role": one_of("assistant"), "content": nullable(TEXT)},
        {"refusal": TEXT, "tool_calls": array(ref("ToolCall"))},
    )
    needed = {"index": integer(0), "message": message, "finish_reason": _REASON}
    choice = record(needed, {"logprobs": _chat_logprobs()})
    return record({**_headed("chat.completion", choice), "usage": ref("Usage")})


def _chat_chunk() -> Schema:
    """One event of a stream."""
    called = record({"index": integer(0)}, {"id": TEXT, "type": one_of("function"), "function": _called_in_parts()})
    delta = record({}, {"role": one_of("assistant"), "content": TEXT, "tool_calls": array(called)})
    needed = {"index": integer(0), "delta": delta, "finish_reason": nullable(_REASON)}
    choice = record(needed, {"logprobs": _chat_logprobs()})
    return record(_headed("chat.completion.chunk", choice), {"usage": ref("Usage")})


def _completion() -> Schema:
    """Whole, and one event of a stream."""
    needed = {"index": integer(0), "text": TEXT, "finish_reason": nullable(_TEXT_REASON)}
    choice = record(needed, {"logprobs": ref("TextLogprobs")})
    return record(_headed("text_completion", choice), {"usage": ref("Usage")})


def _usage() -> Schema:
    counted = ("prompt_tokens", "completion_tokens", "total_tokens")
    details = {
        "prompt_tokens_details": record({"cached_tokens": integer(0)}),
        "completion_tokens_details": record({"reasoning_tokens": integer(0)}),
    }
    return record({**{name: integer(0) for name in counted}, **details})


def _called() -> Schema:
    return record({"name": TEXT, "arguments": TEXT})


def _called_in_parts() -> Schema:
    return record({"arguments": TEXT}, {"name": TEXT})


def _chat_logprobs() -> Schema:
    return record({"content": array(ref("TokenLogprob"))}, {"refusal": array(ref("TokenLogprob"))})


def _token(*, top: bool) -> Schema:
    entry = {"token": TEXT, "logprob": number(None, None), "bytes": array(integer(0, 255))}
    return record({**entry, "top_logprobs": array(_token(top=False))} if top else entry)


def _text_logprobs() -> Schema:
    likeliest: Schema = {"type": "object", "additionalProperties": number()}
    columns = {"tokens": TEXT, "token_logprobs": number(), "top_logprobs": likeliest, "text_offset": integer(0)}
    return record({name: array(items) for name, items in columns.items()})


def _model() -> Schema:
    needed = {"id": TEXT, "object": one_of("model"), "created": integer(), "owned_by": TEXT}
    return record({**needed, "parent": nullable(TEXT)})


def _error() -> Schema:
    inside = {"message": TEXT, "type": TEXT, "param": nullable(TEXT), "code": any_of(TEXT, {"type": "null"})}
    return record({"error": record(inside)})
