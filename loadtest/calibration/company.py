"""What requests cost each other that share a fleet's processors, besides their steps.

Alone, a request uses one processor after the other: client, gateway, bus and worker have all that they can use. In
company they have not, and what it does to a first token is seen from outside in three ways. A request that comes while
another replica computes, and has its own for itself, says by how much its way is longer. One with a long prompt that
comes while others give long answers says by how much its steps are. And of a volley, requests sent at one moment, the
first tokens say how much they hold each other up. The last two are sought by playing the same requests on the
twin's own way and steps until its first tokens come when the real ones came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median

import msgspec

from loadtest.calibration.fitting import apart
from loadtest.calibration.least_squares import LEAST_S
from loadtest.calibration.overheads import prefill_s
from loadtest.calibration.played import played_s
from loadtest.calibration.seen import Seen
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import MeasuredTable, Timing

ENOUGH = 6
"""Requests that must have met company, and as many that have not."""
_SEEDS = range(4)
_HALVINGS = 14
_MOST_CROWDED = 8.0
"""By so many times itself no step is longer."""


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """A request that had its replica for itself: what it needed besides its steps until its first token, how long these
    take alone, and how many other replicas computed as it was sent."""

    overhead_s: float
    beside: int
    steps_s: float = 0.0

    def without_s(self, crowd_share: float) -> float:
        """The overhead, less what its steps took longer for the others."""
        return self.overhead_s - self.beside * crowd_share * self.steps_s


def met(seen: Sequence[Seen], table: MeasuredTable, chunk_tokens: int) -> list[Met]:
    """Of all requests of one run that had their replica for themselves, and came apart from all others."""
    found = [(each, prefill_s(each.prompt_tokens, table, chunk_tokens)) for each in apart(seen)]
    return [
        Met(overhead_s=(each.ttft_s or 0.0) - steps_s, beside=len(_computing(each, seen)), steps_s=steps_s)
        for each, steps_s in found
    ]


def fit_beside(found: Sequence[Met], crowd_share: float = 0.0) -> float:
    """How much longer the way is for each replica that computes; 0 if too few requests tell."""
    in_company = [each for each in found if each.beside]
    undisturbed = [each.without_s(crowd_share) for each in found if not each.beside]
    if min(len(in_company), len(undisturbed)) < ENOUGH:
        return 0.0
    longer_s = median(each.without_s(crowd_share) for each in in_company) - median(undisturbed)
    return max(0.0, longer_s / fmean(each.beside for each in in_company))


def fit_crowd(scenes: Sequence[Sequence[Seen]], timing: Timing, shape: BatchShape) -> float:
    """The `crowd_share` with which most questions that came last have their first token in the twin when they had it; 0
    without one."""
    questions = [each for each in scenes if each[-1].first_s is not None]

    def late(crowd_share: float) -> bool:
        tried = msgspec.structs.replace(timing, crowd_share=crowd_share)
        return _late(questions, lambda scene, seed: played_s(scene, tried, shape, seed)[-1], lambda scene: scene[-1:])

    return _border(late, _MOST_CROWDED) if questions else 0.0


def fit_line(volleys: Sequence[Sequence[Seen]], timing: Timing, shape: BatchShape) -> float | None:
    """The `line_s` with which the first tokens of most volleys, on average over each, come in the twin when they came;
    None if there was no volley."""

    def late(line_s: float) -> bool:
        tried = msgspec.structs.replace(timing, line_s=line_s)
        return _late(volleys, lambda volley, seed: fmean(played_s(volley, tried, shape, seed)), lambda volley: volley)

    if not volleys:
        return None
    return _border(late, timing.gateway_s + timing.bus_s + timing.worker_s)


def _computing(each: Seen, seen: Sequence[Seen]) -> set[str]:
    """The other replicas that had given a first token and not yet a last one."""
    return {
        other.replica
        for other in seen
        if other.replica != each.replica and other.first_s is not None and other.first_s < each.sent_s < other.ended_s
    }


def _late(
    scenes: Sequence[Sequence[Seen]],
    twin_s: Callable[[Sequence[Seen], int], float],
    counted: Callable[[Sequence[Seen]], Sequence[Seen]],
) -> bool:
    """Whether the twin's first tokens of those who are `counted` come too late in most scenes."""
    shares = []
    for scene in scenes:
        real_s = fmean(each.ttft_s or 0.0 for each in counted(scene))
        shares.append(median(twin_s(scene, seed) for seed in _SEEDS) / max(real_s, LEAST_S))
    return median(shares) > 1


def _border(late: Callable[[float], bool], high: float) -> float:
    """From where on it is late, and not yet before; nothing is sought beyond `high`."""
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if late(middle) else (middle, high)
    return low
