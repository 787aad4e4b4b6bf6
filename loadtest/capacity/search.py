"""The smallest fleet that meets an objective, found by trying sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from loadtest.plots.planning import PlanPoint

Try = Callable[[int], PlanPoint]
"""What a fleet of so many replicas does. `misses` says in what it falls short."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """`points` in order of replicas. All that are larger than `smallest` and were tried meet the objective too, unless
    `why_not_fewer` says which do not; one replica fewer was tried and does not. None: no size does."""

    points: tuple[PlanPoint, ...]
    smallest: int | None
    why_not_fewer: str


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Below `low` the fleet could not even carry its traffic; `expected` is where the search begins; `high` is where it
    gives up. `beside` sizes on both sides of the smallest are tried too, for the picture."""

    low: int
    expected: int
    high: int
    beside: int = 2


def smallest(attempt: Try, bounds: Bounds) -> Found:
    """Doubles its distance from `expected` until the objective is met on one side and missed on the other, then halves
    what lies between. A size that meets it below one that misses it was lucky, unless no larger one meets it."""
    tried: dict[int, PlanPoint] = {}

    def meets(replicas: int) -> bool:
        if replicas not in tried:
            tried[replicas] = attempt(replicas)
        return not tried[replicas].misses

    at = _first(meets, bounds)
    for replicas in range(max(bounds.low, at - bounds.beside), min(bounds.high, at + bounds.beside - 1) + 1):
        meets(replicas)
    while at <= bounds.high and (larger := [size for size, point in tried.items() if size > at and point.misses]):
        at = _first(meets, msgspec.structs.replace(bounds, low=max(larger) + 1, expected=max(larger) + 1))
    return _found(tried, at if at <= bounds.high else _lucky(tried, meets, bounds.low), bounds)


def _first(meets: Callable[[int], bool], bounds: Bounds) -> int:
    """The first size that meets the objective, beyond `high` if none does."""
    if bounds.low > bounds.high:
        return bounds.low
    short, enough = _bracket(meets, bounds)
    while enough is not None and enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (short, middle) if meets(middle) else (middle, enough)
    return short + 1


def _bracket(meets: Callable[[int], bool], bounds: Bounds) -> tuple[int, int | None]:
    """A size that misses (or the one below all that are allowed) and one that meets, None if even the highest does
    not."""
    at, step = min(max(bounds.expected, bounds.low), bounds.high), 1
    if meets(at):
        while at > bounds.low:
            lower = max(bounds.low, at - step)
            if not meets(lower):
                return lower, at
            at, step = lower, 2 * step
        return bounds.low - 1, at
    while at < bounds.high:
        higher = min(bounds.high, at + step)
        if meets(higher):
            return at, higher
        at, step = higher, 2 * step
    return at, None


def _lucky(tried: Mapping[int, PlanPoint], meets: Callable[[int], bool], low: int) -> int | None:
    """The largest sizes miss the objective; the smallest of those that meet it all the same."""
    good = [replicas for replicas, point in tried.items() if not point.misses]
    if not good:
        return None
    at = min(good)
    while at > low and meets(at - 1):
        at -= 1
    return at


def _found(tried: Mapping[int, PlanPoint], smallest: int | None, bounds: Bounds) -> Found:
    points = tuple(tried[replicas] for replicas in sorted(tried))
    if smallest is None:
        return Found(points=points, smallest=None, why_not_fewer=_sentence(points[-1]))
    if smallest == bounds.low:
        why = f"{bounds.low - 1} replicas could not carry the traffic, even without any noise in it"
    else:
        why = _sentence(tried[smallest - 1])
    larger = [point for point in points if point.replicas > smallest and point.misses]
    return Found(points=points, smallest=smallest, why_not_fewer="; nor do ".join([why, *map(_said, larger)]))


def _sentence(point: PlanPoint) -> str:
    return f"{point.replicas} replicas do not: {point.misses}"


def _said(point: PlanPoint) -> str:
    return f"{point.replicas}, though they are more: {point.misses}"
