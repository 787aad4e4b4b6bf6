"""How often adapters come into slots and leave them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_MINUTE_S = 60.0


@dataclass
class Turnover:
    """`loads` that ended well and `evictions`, since the start and in the last minute."""

    loads: int = 0
    evictions: int = 0
    _loaded_at_s: deque[float] = field(default_factory=deque)
    _evicted_at_s: deque[float] = field(default_factory=deque)

    def loaded(self, now_s: float) -> None:
        self.loads += 1
        self._loaded_at_s.append(now_s)

    def evicted(self, now_s: float) -> None:
        self.evictions += 1
        self._evicted_at_s.append(now_s)

    def loads_per_min(self, now_s: float) -> float:
        return _recent(self._loaded_at_s, now_s)

    def evictions_per_min(self, now_s: float) -> float:
        return _recent(self._evicted_at_s, now_s)


def _recent(times_s: deque[float], now_s: float) -> float:
    while times_s and times_s[0] <= now_s - _MINUTE_S:
        times_s.popleft()
    return float(len(times_s))
