"""Log probabilities in OpenAI's two forms: a list of tokens for chats, columns for texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.messages.generation import TokenLogprob, TopToken

_LEAST = -9_999.0
"""What OpenAI says for "impossible": JSON has no infinity."""


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    return [{**_entry(token), "top_logprobs": [_entry(top) for top in token.top]} for token in tokens]


class TextLogprobs:
    """Of one answer; `text_offset` counts characters over all that was put in."""

    def __init__(self) -> None:
        self._characters = 0

    def put(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        return {
            "tokens": [spelled(token.raw) for token in tokens],
            "token_logprobs": [_finite(token.logprob) for token in tokens],
            "top_logprobs": [{spelled(top.raw): _finite(top.logprob) for top in token.top} for token in tokens],
            "text_offset": [self._offset(token.raw) for token in tokens],
        }

    def _offset(self, raw: bytes) -> int:
        """Where the token begins. A character counts at its first byte."""
        offset = self._characters
        self._characters += sum(byte & 0xC0 != 0x80 for byte in raw)
        return offset


def spelled(raw: bytes) -> str:
    """Bytes that are no text are written out: they may be a part of a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _entry(token: TokenLogprob | TopToken) -> dict[str, Any]:
    return {"token": spelled(token.raw), "logprob": _finite(token.logprob), "bytes": list(token.raw)}


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
