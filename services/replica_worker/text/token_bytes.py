"""The bytes that one token stands for, which need not be whole characters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tokenizers

_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
_WORD_START = "\u2581"


class TokenBytes:
    """Of byte-level vocabularies, of those that fall back to byte tokens, and of those that hold plain text. The bytes
    of an answer's tokens, joined, are those of its text, but for control tokens and a first space that is dropped."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = {id_: token.content for id_, token in tokenizer.get_added_tokens_decoder().items()}
        self._decoders = set(_decoders(tokenizer))
        self._known: dict[int, bytes] = {}
        """As many as the vocabulary has: log probabilities ask for twenty with every token."""

    def of(self, token_id: int) -> bytes:
        """A control token's are its spelling; b"" for an id that the vocabulary does not name."""
        if (known := self._known.get(token_id)) is None:
            known = self._known[token_id] = self._spelled(token_id)
        return known

    def _spelled(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        spelling = self._tokenizer.id_to_token(token_id)
        if spelling is None:
            return b""
        if "ByteLevel" in self._decoders:
            return b"".join(_BYTE_OF.get(character) or character.encode() for character in spelling)
        if "ByteFallback" in self._decoders and (byte := _BYTE_TOKEN.fullmatch(spelling)):
            return bytes.fromhex(byte[1])
        if self._decoders & {"Metaspace", "Replace"}:
            spelling = spelling.replace(_WORD_START, " ")
        return spelling.encode()


def _decoders(tokenizer: tokenizers.Tokenizer) -> Iterator[str]:
    """The names of the steps that the tokenizer decodes in."""
    decoder: Any = tokenizer.decoder
    if decoder is None:
        return
    declared: Mapping[str, Any] = json.loads(decoder.__getstate__())
    yield from (each["type"] for each in declared.get("decoders", [declared]))


def _byte_of() -> dict[str, bytes]:
    """Byte-level vocabularies write a byte that prints as its own character, and the others, in order, from U+0100."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printing]
    written = {chr(byte): bytes([byte]) for byte in printing}
    return written | {chr(0x100 + at): bytes([byte]) for at, byte in enumerate(others)}


_BYTE_OF = _byte_of()
