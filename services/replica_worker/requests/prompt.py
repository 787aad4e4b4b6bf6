"""The token ids that a request is to be answered from."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from services.replica_worker.text.chat import ChatUnusable
from services.replica_worker.text.tokenizer import Tokenizer
from shared.json_values import json_value
from shared.messages.generation import ChatMessage, GenerateRequest

_LONG_CHARACTERS = 20_000
"""Above it tokenizing takes milliseconds, and moves off the event loop."""
_MESSAGE_CHARACTERS = 40
"""About what a template makes of a message without content. Thousands of them are a long prompt as well."""


async def encode(tokenizer: Tokenizer, request: GenerateRequest) -> list[int]:
    """Raises ChatUnusable if the chat template refuses the messages."""
    if _characters(request) > _LONG_CHARACTERS:
        return await asyncio.to_thread(_encode, tokenizer, request)
    return _encode(tokenizer, request)


def _encode(tokenizer: Tokenizer, request: GenerateRequest) -> list[int]:
    if request.messages:
        tools = (_parsed("tools", request.tools) or None) if request.tools else None
        return tokenizer.encode_chat([_for_template(message) for message in request.messages], tools)
    if request.prompt is not None:
        return tokenizer.encode_prompt(request.prompt)
    return list(request.prompt_token_ids)


def _characters(request: GenerateRequest) -> int:
    of_messages = sum(len(message.content) + len(message.tool_calls) for message in request.messages)
    of_messages += _MESSAGE_CHARACTERS * len(request.messages)
    return of_messages + len(request.tools) + len(request.prompt or "")


def _for_template(message: ChatMessage) -> dict[str, Any]:
    """Templates read a call's arguments as the object that clients send as text."""
    built: dict[str, Any] = msgspec.to_builtins(message)
    if message.tool_calls:
        built["tool_calls"] = [_with_arguments(call) for call in _parsed("tool_calls", message.tool_calls)]
    return built


def _with_arguments(call: Any) -> Any:
    match call:
        case {"function": {"arguments": str(text), **function}, **rest}:
            return {**rest, "function": {**function, "arguments": _object(text)}}
        case _:
            return call


def _object(text: str) -> Any:
    """What is no JSON is what a model wrote, and is shown to it as it wrote it."""
    try:
        return json_value(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _parsed(name: str, text: str) -> list[Any]:
    try:
        return msgspec.convert(json_value(text), list[Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ChatUnusable(f"{name} is not a list in JSON: {error}") from error
