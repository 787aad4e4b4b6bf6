"""What clients saw, one request after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from loadtest.workloads.popularity import Floats, Ints

STOPPED = "stopped"
"""Whoever measured had enough: neither a success nor a failure."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request. Times count from the moment when it was due, so that a request that was sent late is not quick:
    `delay_s` is how late. `at_s` is that moment since the run began."""

    at_s: float
    alias: str
    outcome: str
    """"ok", the status of a refusal, or in a word what else it was."""
    reason: str = ""
    """The sentence of what went wrong."""
    tier: str = ""
    delay_s: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2el_s: float = 0.0
    prompt_tokens: int = 0
    tokens: int = 0
    content: str = ""
    """Whose marker was in it, where that was looked for."""


class Gaps:
    """The times between two pieces of an answer, in classes one hundredth wide: they are too many to keep."""

    _LOW_S, _CLASSES_PER_E, _CLASSES = 1e-6, 100, 2_200

    def __init__(self) -> None:
        self._counts: Ints = np.zeros(self._CLASSES, dtype=np.int64)
        self._sum_s = 0.0

    def add(self, times_s: Sequence[float], pieces: int) -> None:
        """`pieces` that came at these moments, some of them together."""
        gaps_s = np.diff(np.asarray(times_s))
        self._sum_s += float(gaps_s.sum())
        classes = np.log(np.maximum(gaps_s, self._LOW_S) / self._LOW_S) * self._CLASSES_PER_E
        np.add.at(self._counts, np.minimum(classes.astype(np.int64), self._CLASSES - 1), 1)
        self._counts[0] += pieces - len(times_s)

    def merged(self, other: Gaps) -> Gaps:
        both = Gaps()
        both._counts = self._counts + other._counts
        both._sum_s = self._sum_s + other._sum_s
        return both

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    @property
    def mean_s(self) -> float:
        return self._sum_s / self.count

    def quantile_s(self, share: float) -> float:
        """To a hundredth; 0 for pieces that came together."""
        at = int(np.searchsorted(np.cumsum(self._counts), share * self.count))
        return 0.0 if at == 0 else self._LOW_S * float(np.exp((at + 0.5) / self._CLASSES_PER_E))


class Collected:
    """A run. Nothing that was due in the first `warm_up_s` counts."""

    def __init__(self, warm_up_s: float = 0.0) -> None:
        self.warm_up_s = warm_up_s
        self.seen: list[Seen] = []
        self.stopped = 0
        self.warm_up = 0
        self.most_streams = 0
        self.ended_s = 0.0
        """When the last of those that count was over."""
        self.gaps: dict[str, Gaps] = defaultdict(Gaps)
        """[tier]"""

    def add(self, one: Seen, times_s: Sequence[float], pieces: int) -> None:
        if one.outcome == STOPPED:
            self.stopped += 1
        elif one.at_s < self.warm_up_s:
            self.warm_up += 1
        else:
            self.seen.append(one)
            self.ended_s = max(self.ended_s, one.at_s + one.e2el_s)
            if one.outcome == "ok" and len(times_s) > 0 and pieces > 1:
                self.gaps[one.tier].add(times_s, pieces)

    @property
    def duration_s(self) -> float:
        return max(0.0, self.ended_s - self.warm_up_s)

    def times_s(self, name: str, among: Sequence[Seen]) -> Floats:
        """All of one kind of time, where it was seen."""
        found = [value for one in among if (value := getattr(one, name)) is not None]
        return np.asarray(found, dtype=np.float64)
