"""Stop strings: the text up to the first one, and never a character of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Fed with text in any pieces; the same text gives the same result however it is cut.

    The match that is complete first wins, and of two that end together the longer. Text that may yet turn
    out to begin a stop string is held back until it cannot.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises ValueError for an empty stop string, which would match everywhere."""
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """What can be sent now. Once `stopped` is True nothing follows any more."""
        if self.stopped:
            return ""
        if not self._stops:
            return text  # most answers have none, and this is asked for every token
        pending = self._held + text
        start = _first_match(pending, self._stops)
        if start is not None:
            self.stopped, self._held = True, ""
            return pending[:start]
        keep = _longest_beginning(pending, self._stops)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def flush(self) -> str:
        """What was held back, now that no more text comes."""
        held, self._held = self._held, ""
        return held


def _first_match(text: str, stops: Sequence[str]) -> int | None:
    """Where the match begins that ends first."""
    found = [(start + len(stop), start) for stop in stops if (start := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def _longest_beginning(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of `text` with which a stop string begins."""
    longest = min(len(text), max((len(stop) - 1 for stop in stops), default=0))
    for length in range(longest, 0, -1):
        ending = text[-length:]
        if any(stop.startswith(ending) for stop in stops):
            return length
    return 0
