"""What the client of one request has been given, as a replica that goes on with it has to know."""

from __future__ import annotations

from array import array
from collections.abc import Sequence


class Transcript:
    """Token ids at four bytes each, and how many characters of text came with them: a replica holds text back while
    a character or a stop string may be incomplete, so tokens can be ahead of the text."""

    __slots__ = ("_token_ids", "text_chars")

    def __init__(self) -> None:
        self._token_ids = array("I")
        self.text_chars = 0

    def add(self, token_ids: Sequence[int], text: str) -> None:
        if len(token_ids) == 1:
            self._token_ids.append(token_ids[0])
        else:
            self._token_ids.extend(token_ids)
        self.text_chars += len(text)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(self._token_ids)
