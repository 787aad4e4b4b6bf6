"""langchain-openai. Its messages are told again as OpenAI's objects, as far as they go."""

from __future__ import annotations

from typing import Any

from langchain_openai import ChatOpenAI, OpenAI

from tests.clients.speakers.protocol import Asked, Seen, serve

_OF_THE_MODEL = ("model", "n", "logprobs", "top_logprobs", "logit_bias")
"""What LangChain has said when the model is made; the rest goes with each call."""


def speak(asked: Asked, seen: Seen) -> None:
    params = dict(asked["params"])
    own = {name: params.pop(name) for name in _OF_THE_MODEL if name in params}
    own |= {"base_url": asked["url"], "api_key": asked["key"], "max_retries": asked["retries"]}
    _VERBS[asked["verb"]](own, params, seen)


def _chat(own: Any, params: Any, seen: Seen) -> None:
    model, messages = _chat_model(own, params)
    seen.append(_answer(model.invoke(messages)))


def _chat_stream(own: Any, params: Any, seen: Seen) -> None:
    wants_usage = bool(params.pop("stream_options", None))
    model, messages = _chat_model({**own, "stream_usage": wants_usage}, params)
    for chunk in model.stream(messages):
        seen.append(_chunk(chunk))


def _completion(own: Any, params: Any, seen: Seen) -> None:
    prompt = params.pop("prompt")
    result = OpenAI(**own, **params).generate([prompt])
    [[generation]] = result.generations
    told = result.llm_output or {}
    choice = {"text": generation.text, "finish_reason": (generation.generation_info or {}).get("finish_reason")}
    seen.append({"choices": [choice], "model": told.get("model_name"), "usage": told.get("token_usage")})


def _completion_stream(own: Any, params: Any, seen: Seen) -> None:
    prompt = params.pop("prompt")
    params.pop("stream_options", None)
    for text in OpenAI(**own, **params).stream(prompt):
        seen.append({"choices": [{"index": 0, "text": text}]})


def _chat_model(own: Any, params: Any) -> tuple[Any, Any]:
    messages = params.pop("messages")
    tools = params.pop("tools", None)
    model = ChatOpenAI(**own)
    return (model.bind_tools(tools, **params) if tools else model.bind(**params)), messages


def _answer(message: Any) -> dict[str, Any]:
    told = message.response_metadata
    choice = {
        "index": 0,
        "message": {"content": message.content, "tool_calls": _calls(message.tool_calls)},
        "finish_reason": told.get("finish_reason"),
        "logprobs": told.get("logprobs"),
    }
    return {"choices": [choice], "model": told.get("model_name"), "usage": told.get("token_usage")}


def _chunk(message: Any) -> dict[str, Any]:
    told = message.response_metadata
    delta = {"content": message.content, "tool_calls": _pieces(message.tool_call_chunks)}
    choice = {"index": 0, "delta": delta, "finish_reason": told.get("finish_reason"), "logprobs": told.get("logprobs")}
    return {"choices": [choice], "model": told.get("model_name"), "usage": _usage(message.usage_metadata)}


def _calls(calls: Any) -> list[dict[str, Any]]:
    return [{"id": call["id"], "function": {"name": call["name"], "arguments": call["args"]}} for call in calls]


def _pieces(pieces: Any) -> list[dict[str, Any]]:
    return [{**piece, "function": {"name": piece["name"], "arguments": piece["args"]}} for piece in pieces]


def _usage(usage: Any) -> dict[str, Any] | None:
    if not usage:
        return None
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }


_VERBS = {
    "chat": _chat,
    "chat_stream": _chat_stream,
    "completion": _completion,
    "completion_stream": _completion_stream,
}

if __name__ == "__main__":
    serve(speak)
