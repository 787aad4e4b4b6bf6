"""An OpenAI chat body, read and checked: the request it means, or the first thing that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from services.gateway.core import refusal
from services.gateway.core.fields import Defect, flag, is_integer, number, required, shown
from services.gateway.core.question import Strategy
from services.gateway.core.refusal import Refusal
from shared.messages.generation import ChatMessage

ROLES = ("system", "developer", "user", "assistant", "tool")
MOST_STOPS = 4
CHARACTERS_PER_TOKEN = 4
UNKNOWN_ANSWER_TOKENS = 1_024
_LARGEST_TOKENS = (1 << 31) - 1
_INT64 = 1 << 63

_CHANGES_THE_ANSWER: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "web_search_options": (),
}
"""Parameters that are not served, each with the values (besides null) that ask for nothing special."""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`max_tokens` None means "up to the end of the context"; `seed` None leaves the draw to the gateway. `session` is
    the client's own name for the conversation or its user, and decides nothing but which of two versions answers.
    `strategy` is how a replay wants its replica chosen, where that is allowed."""

    model: str
    messages: tuple[ChatMessage, ...]
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False
    traceparent: str = ""
    session: str | None = None
    strategy: Strategy | None = None


def promised_tokens(chat: ChatRequest, max_context_tokens: int) -> int:
    """About how much a replica promises by taking the request: context and the tokens it may add.

    Only the replica can count the prompt; four characters a token is near enough to tell loads apart.
    `max_context_tokens` 0 is unknown.
    """
    prompt = sum(len(message.content) for message in chat.messages) // CHARACTERS_PER_TOKEN
    if not max_context_tokens:
        return prompt + (chat.max_tokens or UNKNOWN_ANSWER_TOKENS)
    return min(prompt + (chat.max_tokens or max_context_tokens), max_context_tokens)


def estimated_tokens(chat: ChatRequest, max_context_tokens: int) -> int:
    """About what the request will come to, for limits: whoever names no `max_tokens` seldom means the whole context."""
    prompt = sum(len(message.content) for message in chat.messages) // CHARACTERS_PER_TOKEN
    tokens = prompt + (chat.max_tokens or UNKNOWN_ANSWER_TOKENS)
    return min(tokens, max_context_tokens) if max_context_tokens else tokens


def parse(body: bytes) -> ChatRequest | Refusal:
    """Fields that nobody knows, and those that only name a cache, are ignored."""
    try:
        fields = msgspec.json.decode(body)
    except RecursionError:
        return refusal.bad_request("The request body is nested too deeply.", code="invalid_json")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return refusal.bad_request(f"The request body is not valid JSON: {error}.", code="invalid_json")
    if not isinstance(fields, dict):
        return refusal.bad_request("The request body must be a JSON object.", code="invalid_json")
    try:
        return _read({name: value for name, value in fields.items() if value is not None})
    except Defect as defect:
        return defect.refusal


def _read(fields: dict[str, Any]) -> ChatRequest:
    model = required(fields, "model")
    if not isinstance(model, str) or not model:
        raise Defect(f"`model` must be a non-empty string, not {shown(model)}.", "model", "invalid_type")
    messages = _messages(required(fields, "messages"))
    _refuse_what_is_not_served(fields)
    stream = flag(fields, "stream", "stream")
    return ChatRequest(
        model=model,
        messages=messages,
        max_tokens=_max_tokens(fields),
        temperature=number(fields, "temperature", 0.0, 2.0),
        top_p=_top_p(fields),
        stop=_stop(fields.get("stop", [])),
        seed=_seed(fields.get("seed")),
        stream=stream,
        include_usage=_include_usage(fields.get("stream_options"), stream),
        session=user if isinstance(user := fields.get("user"), str) and user else None,
    )


def _refuse_what_is_not_served(fields: dict[str, Any]) -> None:
    if "n" in fields and (fields["n"] != 1 or isinstance(fields["n"], bool)):
        raise Defect(f"`n` must be 1, not {shown(fields['n'])}: one choice is served a request.", "n", "invalid_value")
    for name, harmless in _CHANGES_THE_ANSWER.items():
        if name in fields and fields[name] not in harmless:
            raise Defect(f"`{name}` is not supported.", name, "unsupported_parameter")


def _messages(value: Any) -> tuple[ChatMessage, ...]:
    if not isinstance(value, list):
        raise Defect(f"`messages` must be a list, not {shown(value)}.", "messages", "invalid_type")
    if not value:
        raise Defect("`messages` must hold at least one message.", "messages", "empty_array")
    return tuple(_message(f"messages[{index}]", item) for index, item in enumerate(value))


def _message(at: str, item: Any) -> ChatMessage:
    if not isinstance(item, dict):
        raise Defect(f"`{at}` must be an object with `role` and `content`, not {shown(item)}.", at, "invalid_type")
    role, name = item.get("role"), item.get("name")
    if role not in ROLES:
        message = f"`{at}.role` must be one of {', '.join(ROLES)}, not {shown(role)}."
        raise Defect(message, f"{at}.role", "invalid_value")
    if item.get("tool_calls") or item.get("function_call"):
        raise Defect(f"`{at}.tool_calls` is not supported.", f"{at}.tool_calls", "unsupported_parameter")
    if name is not None and not isinstance(name, str):
        raise Defect(f"`{at}.name` must be a string, not {shown(name)}.", f"{at}.name", "invalid_type")
    # "developer" is OpenAI's newer word for "system"; chat templates know the older one alone.
    spoken = "system" if role == "developer" else role
    return ChatMessage(role=spoken, content=_content(f"{at}.content", item.get("content")), name=name)


def _content(at: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise Defect(f"`{at}` must be a string or a list of text parts, not {shown(value)}.", at, "invalid_type")
    return "".join(_part(f"{at}[{index}]", part) for index, part in enumerate(value))


def _part(at: str, part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, dict) else part
        raise Defect(f"`{at}` must be a part of type text, not {shown(kind)}.", at, "unsupported_parameter")
    text = part.get("text")
    if not isinstance(text, str):
        raise Defect(f"`{at}.text` must be a string, not {shown(text)}.", f"{at}.text", "invalid_type")
    return text


def _max_tokens(fields: dict[str, Any]) -> int | None:
    name = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    if name not in fields:
        return None
    value = fields[name]
    if not is_integer(value) or value < 1:
        raise Defect(f"`{name}` must be an integer of at least 1, not {shown(value)}.", name, "invalid_value")
    return min(int(value), _LARGEST_TOKENS)


def _top_p(fields: dict[str, Any]) -> float:
    value = number(fields, "top_p", 0.0, 1.0)
    if value == 0.0:
        raise Defect("`top_p` must be above 0: nothing could be sampled.", "top_p", "invalid_value")
    return value


def _stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or any(not isinstance(stop, str) or not stop for stop in stops):
        raise Defect("`stop` must be a non-empty string or a list of them.", "stop", "invalid_type")
    if len(stops) > MOST_STOPS:
        raise Defect(f"`stop` may hold at most {MOST_STOPS} strings, not {len(stops)}.", "stop", "invalid_value")
    return tuple(stops)


def _seed(value: Any) -> int | None:
    if value is None:
        return None
    if not is_integer(value) or not -_INT64 <= value < _INT64:
        raise Defect(f"`seed` must be a 64-bit integer, not {shown(value)}.", "seed", "invalid_value")
    return int(value) % _INT64


def _include_usage(options: Any, stream: bool) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict):
        raise Defect(f"`stream_options` must be an object, not {shown(options)}.", "stream_options", "invalid_type")
    if not stream:
        raise Defect("`stream_options` is only allowed when `stream` is true.", "stream_options", "invalid_value")
    return flag(options, "include_usage", "stream_options.include_usage")
