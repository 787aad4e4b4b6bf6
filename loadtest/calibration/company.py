"""What requests cost each other that share a fleet's processors, besides their steps.

Alone, a request uses one processor after the other: client, gateway, bus and worker have all that they can use. In
company they have not, and what it does to a first token is seen from outside in three ways. Of a volley, requests sent
at one moment, the first tokens say how much they hold each other up. Requests that come while a replica computes say by
how much their way is longer. And those with long prompts whose steps another replica's are beside say by how much these
are. All of it is sought by playing the same requests on the twin's own way and steps until its first tokens come when
the real ones came.
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
"""Requests that must have met company."""
_SEEDS = range(4)
_HALVINGS = 12
_MOST_CROWDED = 8.0
"""By so many times itself no step is longer."""
_ASIDE = 0.05
"""Of those that are furthest off, to either side, so many do not count: the machine may have disturbed them."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that were in a fleet together, and at which places among them are those that it is about."""

    seen: Sequence[Seen]
    about: Sequence[int]


def undisturbed_s(seen: Sequence[Seen], table: MeasuredTable, chunk_tokens: int) -> list[float]:
    """What requests of one run needed besides their steps until their first token that had their replica for
    themselves, came apart from all others, and while no other replica computed."""
    quiet = (each for each in apart(seen) if not any(_answered_as_it_came(each, other) for other in seen))
    return [(each.ttft_s or 0.0) - prefill_s(each.prompt_tokens, table, chunk_tokens) for each in quiet]


def in_company(seen: Sequence[Seen]) -> Scene:
    """About those who came while others were being answered."""
    return _scene(seen, lambda each: any(_answered_as_it_came(each, other) for other in seen))


def crowded(seen: Sequence[Seen], chunk_tokens: int) -> Scene:
    """About those whose prompts took several steps, beside another replica's."""
    return _scene(seen, lambda each: each.prompt_tokens > chunk_tokens and any(_beside(each, other) for other in seen))


def fit_beside(scenes: Sequence[Scene], timing: Timing, shape: BatchShape) -> float:
    """With how much longer a way in company first tokens come in the twin when they came, on average; 0 if too few
    tell. No way becomes more than twice as long."""

    def late(beside_s: float) -> bool:
        return _later_s(scenes, msgspec.structs.replace(timing, beside_s=beside_s), shape) > 0

    return _border(late, timing.gateway_s + timing.bus_s + timing.worker_s) if _enough(scenes) else 0.0


def fit_crowd(scenes: Sequence[Scene], timing: Timing, shape: BatchShape) -> float:
    """With which `crowd_share` first tokens come in the twin when they came, on average; 0 if too few tell."""

    def late(crowd_share: float) -> bool:
        return _later_s(scenes, msgspec.structs.replace(timing, crowd_share=crowd_share), shape) > 0

    return _border(late, _MOST_CROWDED) if _enough(scenes) else 0.0


def fit_line(volleys: Sequence[Sequence[Seen]], timing: Timing, shape: BatchShape) -> float | None:
    """The `line_s` with which the first tokens of most volleys, on average over each, come in the twin when they came;
    None if there was no volley."""

    def late(line_s: float) -> bool:
        tried = msgspec.structs.replace(timing, line_s=line_s)
        return median(_share(volley, tried, shape) for volley in volleys) > 1

    if not volleys:
        return None
    return _border(late, timing.gateway_s + timing.bus_s + timing.worker_s)


def _scene(seen: Sequence[Seen], fits: Callable[[Seen], bool]) -> Scene:
    """Without those that never had a first token, about whoever found its adapter in a slot and `fits`."""
    begun = [each for each in seen if each.first_s is not None]
    return Scene(seen=begun, about=[at for at, each in enumerate(begun) if each.tier == "gpu" and fits(each)])


def _answered_as_it_came(each: Seen, other: Seen) -> bool:
    return other is not each and other.sent_s < each.sent_s < other.ended_s


def _beside(each: Seen, other: Seen) -> bool:
    """Whether another replica had it before this one had its first token."""
    return other.replica != each.replica and other.sent_s < (each.first_s or 0.0) and each.sent_s < other.ended_s


def _enough(scenes: Sequence[Scene]) -> bool:
    return sum(len(scene.about) for scene in scenes) >= ENOUGH


def _later_s(scenes: Sequence[Scene], timing: Timing, shape: BatchShape) -> float:
    """By how much the twin's first tokens of those whom the scenes are about come later than the real ones, on average
    over all but the furthest off. The average, since it is a tail that company makes."""
    off_s = sorted(late_s for scene in scenes if scene.about for late_s in _off_s(scene, timing, shape))
    aside = int(_ASIDE * len(off_s))
    return fmean(off_s[aside : len(off_s) - aside])


def _off_s(scene: Scene, timing: Timing, shape: BatchShape) -> list[float]:
    played = [played_s(scene.seen, timing, shape, seed) for seed in _SEEDS]
    return [fmean(one[at] for one in played) - (scene.seen[at].ttft_s or 0.0) for at in scene.about]


def _share(volley: Sequence[Seen], timing: Timing, shape: BatchShape) -> float:
    """The twin's first tokens over the real ones."""
    real_s = fmean(each.ttft_s or 0.0 for each in volley)
    return median(fmean(played_s(volley, timing, shape, seed)) for seed in _SEEDS) / max(real_s, LEAST_S)


def _border(late: Callable[[float], bool], high: float) -> float:
    """From where on it is late, and not yet before; nothing is sought beyond `high`."""
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if late(middle) else (middle, high)
    return low
