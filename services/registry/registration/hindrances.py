"""What stood in the way of each adapter last: the sentence that a deadline ends with."""

from __future__ import annotations

_NOTHING = "nothing was tried since the registry started"


class Hindrances:
    """For this process only: after a restart the next attempt says it again."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def note(self, adapter_id: str, sentence: str) -> None:
        self._last[adapter_id] = sentence

    def last(self, adapter_id: str) -> str:
        return self._last.get(adapter_id, _NOTHING)

    def forget(self, adapter_id: str) -> None:
        self._last.pop(adapter_id, None)
