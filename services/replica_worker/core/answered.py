"""The last word on each of the latest requests: a gateway that may not have heard it asks once more."""

from __future__ import annotations

from collections import OrderedDict

from shared.messages.generation import Accepted, Refused

MOST = 4_096
"""More than a replica answers while its gateways wait for a bus that is away."""


class Answered:
    """Of those before the latest `most` nothing is known: asked again, they would be taken for new ones."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._words: OrderedDict[str, Accepted | Refused] = OrderedDict()

    def note(self, word: Accepted | Refused) -> None:
        self._words[word.request_id] = word
        if len(self._words) > self._most:
            self._words.popitem(last=False)

    def word_on(self, request_id: str) -> Accepted | Refused | None:
        return self._words.get(request_id)
