"""Token ids to text, one token at a time, without ever showing half a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
_INCOMPLETE = 3
"""A character has at most four bytes, so at most three of them can be waiting for the rest."""
_CONTEXT = 4
_WINDOW = 12
"""Tokens: a window longer than this is cut to its last `_CONTEXT`, which is as far back as a decoder looks
for a space to strip or a character to complete."""

Decode = Callable[[Sequence[int]], str]


class Detokenizer:
    """The joined deltas of a request equal the decoding of all its tokens at once.

    Each push decodes a window of a dozen tokens at most, so the cost of a token does not grow with the
    length of the answer. Bytes that are no text at all come out as U+FFFD, as in a full decoding.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._sent = 0

    def push(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is still incomplete."""
        if len(self._window) >= _WINDOW:
            self._cut()
        self._window.append(token_id)
        text = self._decode(self._window)
        return self._emit(text, len(text) - _incomplete(text))

    def flush(self) -> str:
        """What was held back, as it stands, now that no more tokens come."""
        text = self._decode(self._window)
        return self._emit(text, len(text))

    def _emit(self, text: str, until: int) -> str:
        delta = text[self._sent : until]
        self._sent = max(self._sent, until)
        return delta

    def _cut(self) -> None:
        """Drop old tokens but keep what is held back held back."""
        held = len(self._decode(self._window)) - self._sent
        self._window = self._window[-_CONTEXT:]
        self._sent = len(self._decode(self._window)) - held


def _incomplete(text: str) -> int:
    """How many characters at the end may change when more bytes arrive."""
    trailing = len(text) - len(text.rstrip(REPLACEMENT))
    return min(trailing, _INCOMPLETE)
