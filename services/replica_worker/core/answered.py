"""The last word on each of the latest requests: its gateway may not have heard it."""

from __future__ import annotations

from collections import OrderedDict
from itertools import takewhile

from shared.messages.generation import Accepted, Refused

MOST = 4_096
"""More than a replica answers while its gateways wait for a bus that is away."""


class Answered:
    """Of those before the latest `most` nothing is known: asked again, they would be taken for new ones."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._words: OrderedDict[str, tuple[Accepted | Refused, str, float]] = OrderedDict()

    def note(self, word: Accepted | Refused, gateway_id: str, now_s: float) -> None:
        self._words[word.request_id] = (word, gateway_id, now_s)
        if len(self._words) > self._most:
            self._words.popitem(last=False)

    def word_on(self, request_id: str) -> Accepted | Refused | None:
        said = self._words.get(request_id)
        return None if said is None else said[0]

    def since(self, at_s: float) -> list[tuple[Accepted | Refused, str]]:
        """What was said since then, and to which gateway; the latest first."""
        latest = takewhile(lambda said: said[2] >= at_s, reversed(self._words.values()))
        return [(word, gateway_id) for word, gateway_id, _ in latest]
