"""How fast adapters come from the store, and how long those that are asked for will take."""

from __future__ import annotations

from dataclasses import dataclass, field

ASSUMED_BYTES_PER_S = 200e6
"""Until something was fetched: an object store at its usual."""
_KEPT = 0.95
"""How much of what is known is still believed after one more fetch: those that run at once end in bunches."""

LONGEST_S = 600.0
"""Of those turned away: who comes again before time is counted again, and must not burden others for hours."""


@dataclass
class Pace:
    """Bytes per second of the time in which anything was under way. A fetch that fails says nothing: a store that was
    away is as fast as before when it is back."""

    assumed_bytes_per_s: float = ASSUMED_BYTES_PER_S
    _bytes: float = field(init=False)
    _busy_s: float = field(init=False, default=1.0)
    _under_way: int = field(init=False, default=0)
    _counted_until_s: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._bytes = self.assumed_bytes_per_s

    def began(self, now_s: float) -> None:
        if not self._under_way:
            self._counted_until_s = now_s
        self._under_way += 1

    def ended(self, size_bytes: int, now_s: float) -> None:
        """`size_bytes` 0: it came to nothing."""
        self._under_way -= 1
        if not size_bytes:
            return
        self._bytes = _KEPT * self._bytes + size_bytes
        self._busy_s = _KEPT * self._busy_s + now_s - self._counted_until_s
        self._counted_until_s = now_s

    def wait_s(self, size_bytes: int) -> float:
        """How long so much takes."""
        return size_bytes * self._busy_s / self._bytes if self._bytes else float("inf")


@dataclass
class TurnedAway:
    """Those who were sent away come again, one after another at best: how long the last of them has to wait, if they
    are served from now on at this pace."""

    longest_s: float = LONGEST_S
    _wait_s: float = 0.0
    _at_s: float = 0.0

    def wait_s(self, now_s: float) -> float:
        return max(0.0, self._wait_s - (now_s - self._at_s))

    def add(self, takes_s: float, now_s: float) -> None:
        self._wait_s, self._at_s = min(self.longest_s, self.wait_s(now_s) + takes_s), now_s
