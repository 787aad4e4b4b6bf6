"""Token ids to text, one token at a time, without ever showing half a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
_PATIENCE_TOKENS = 12
"""A character has at most four bytes; what is no text after so many tokens will not become any."""
_CONTEXT_TOKENS = 4

Decode = Callable[[Sequence[int]], str]


class Detokenizer:
    """The joined deltas of a request equal the decoding of all its tokens at once.

    Decoded is a window: the tokens of the last delta, because a decoder may treat the first token it sees
    differently (a leading space), and those since. A window that ends in U+FFFD may still be in the middle
    of a character and says nothing yet: some decoders then spoil whole characters before it as well. The
    cost of a token does not grow with the length of the answer.
    """

    def __init__(self, decode: Decode, alone_chars: dict[int, int] | None = None) -> None:
        """`alone_chars`: how long the text of a token by itself is, to be filled and shared by all with this `decode`:
        nearly every token is the only one in its delta, and would be decoded a second time for that."""
        self._decode = decode
        self._alone_chars = {} if alone_chars is None else alone_chars
        self._window: list[int] = []
        self._sent = 0
        self._since_delta = 0

    def push(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is still incomplete."""
        self._window.append(token_id)
        self._since_delta += 1
        text = self._decode(self._window)
        if not text.endswith(REPLACEMENT):
            return self._settle(text)
        return self._give_up(text) if self._since_delta > _PATIENCE_TOKENS else ""

    def flush(self) -> str:
        """What was held back, as it stands, now that no more tokens come."""
        text = self._decode(self._window)
        delta, self._sent = text[self._sent :], len(text)
        return delta

    def _settle(self, text: str) -> str:
        delta = text[self._sent :]
        if delta:
            self._keep_last(self._since_delta)
            self._sent = self._window_chars()
            self._since_delta = 0
        elif self._sent:
            self._window.pop()  # a control token: it has no text, and must not become the context of any
            self._since_delta -= 1
        return delta

    def _window_chars(self) -> int:
        if len(self._window) > 1:
            return len(self._decode(self._window))
        [token_id] = self._window
        if (chars := self._alone_chars.get(token_id)) is None:
            chars = self._alone_chars[token_id] = len(self._decode(self._window))
        return chars

    def _give_up(self, text: str) -> str:
        """Bytes that are no text: send them as U+FFFD, but for the last, which may still begin a character."""
        delta = text[self._sent : -1]
        self._keep_last(_CONTEXT_TOKENS)
        self._sent = len(self._decode(self._window)) - 1
        self._since_delta = _CONTEXT_TOKENS
        return delta

    def _keep_last(self, tokens: int) -> None:
        self._window = self._window[-tokens:]
