"""The token ids that a request is to be answered from."""

from __future__ import annotations

import asyncio

import msgspec

from services.replica_worker.text.tokenizer import Tokenizer
from shared.messages.generation import GenerateRequest

_LONG_CHARACTERS = 20_000
"""Above it tokenizing takes milliseconds, and moves off the event loop."""


async def encode(tokenizer: Tokenizer, request: GenerateRequest) -> list[int]:
    """Raises ChatUnusable if the chat template refuses the messages."""
    if _characters(request) > _LONG_CHARACTERS:
        return await asyncio.to_thread(_encode, tokenizer, request)
    return _encode(tokenizer, request)


def _encode(tokenizer: Tokenizer, request: GenerateRequest) -> list[int]:
    if request.messages:
        return tokenizer.encode_chat([msgspec.to_builtins(message) for message in request.messages])
    if request.prompt is not None:
        return tokenizer.encode_prompt(request.prompt)
    return list(request.prompt_token_ids)


def _characters(request: GenerateRequest) -> int:
    of_messages = sum(len(message.content) for message in request.messages)
    return of_messages + len(request.prompt or "")
