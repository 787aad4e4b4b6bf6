"""Tokens per second over the last few seconds, for load figures."""

from __future__ import annotations

from collections import deque


class RateMeter:
    """Counts over a sliding window; falls back to zero by itself when nothing is counted any more."""

    def __init__(self, window_s: float = 5.0) -> None:
        self._window_s = window_s
        self._counts: deque[tuple[float, int]] = deque()
        self._total = 0

    def add(self, count: int, now_s: float) -> None:
        self._counts.append((now_s, count))
        self._total += count
        self._forget(now_s)

    def per_s(self, now_s: float) -> float:
        self._forget(now_s)
        return self._total / self._window_s

    def _forget(self, now_s: float) -> None:
        while self._counts and self._counts[0][0] <= now_s - self._window_s:
            self._total -= self._counts.popleft()[1]
