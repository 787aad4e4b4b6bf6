"""The smallest fleet that meets an objective, found by trying sizes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from loadtest.plots.planning import PlanPoint

Try = Callable[[int], PlanPoint]
"""What a fleet of so many replicas does. `misses` says in what it falls short."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """`points` in order of replicas. `smallest` is None if no size that was tried meets the objective; else all larger
    ones that were tried meet it too, and one replica fewer was tried and does not."""

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
    what lies between. Takes it that a larger fleet does no worse; where it does, the larger size counts."""
    tried: dict[int, PlanPoint] = {}

    def meets(replicas: int) -> bool:
        if replicas not in tried:
            tried[replicas] = attempt(replicas)
        return not tried[replicas].misses

    short, enough = _bracket(meets, bounds)
    if enough is None:
        return _found(tried, None, f"{short} replicas do not: {tried[short].misses}")
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (short, middle) if meets(middle) else (middle, enough)
    for replicas in range(max(bounds.low, enough - bounds.beside), min(bounds.high, enough + bounds.beside) + 1):
        meets(replicas)
    enough = 1 + max((replicas for replicas, point in tried.items() if point.misses), default=enough - 1)
    return _found(tried, *_edge(tried, meets, enough, bounds))


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


def _edge(
    tried: dict[int, PlanPoint], meets: Callable[[int], bool], enough: int, bounds: Bounds
) -> tuple[int | None, str]:
    """From `enough` on, sizes meet the objective; why the one below does not."""
    if enough > bounds.high:
        return None, f"{bounds.high} replicas do not: {tried[bounds.high].misses}"
    while not meets(enough):
        if enough == bounds.high:
            return None, f"{enough} replicas do not: {tried[enough].misses}"
        enough += 1
    below = enough - 1
    if below < bounds.low:
        return enough, f"{below} replicas could not carry the traffic, even without any noise in it"
    return enough, f"{below} replicas do not: {tried[below].misses}"


def _found(tried: dict[int, PlanPoint], smallest: int | None, why_not_fewer: str) -> Found:
    points = tuple(tried[replicas] for replicas in sorted(tried))
    return Found(points=points, smallest=smallest, why_not_fewer=why_not_fewer)
