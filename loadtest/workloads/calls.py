"""From a shape to its calls, one after the other: seeded, pure, a million a second."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loadtest.workloads import arrivals, lengths, popularity
from loadtest.workloads.call import Call, Move
from loadtest.workloads.popularity import Floats, Ints
from loadtest.workloads.shape import TrafficShape

_STREAMS = ("when", "who", "how much", "moves")
"""What is drawn from a generator of its own, so that changing one part of a shape leaves the others as they were."""


def calls(shape: TrafficShape) -> Iterator[Call]:
    """All calls of `shape.for_s` seconds in order of time. The same shape gives the same calls."""
    draws = _draws(shape)
    bounds = popularity.shares(shape.popularity, shape.customers)
    versions = _Versions(shape)
    for times_s in arrivals.blocks(shape, draws["when"]):
        tenants = _tenants(shape, bounds, times_s, draws["who"])
        adapters = versions.named(tenants, times_s)
        prompts, outputs = lengths.pairs(shape.lengths, draws["how much"], len(times_s))
        allowed = np.ceil(outputs * max(1.0, shape.allowance)).astype(np.int64)
        streamed = draws["how much"].random(len(times_s)) < shape.streamed
        columns = (times_s, adapters, tenants, prompts, outputs, allowed, streamed)
        yield from map(Call, *(column.tolist() for column in columns))


def moves(shape: TrafficShape) -> Iterator[Move]:
    """When aliases move to new versions, in order of time; nothing without churn."""
    if shape.churn is None or shape.churn.moves_per_s <= 0:
        return
    draw, at_s = _draws(shape)["moves"], 0.0
    named = np.arange(shape.customers)
    while (at_s := at_s + draw.exponential(1 / shape.churn.moves_per_s)) < shape.for_s:
        tenant = int(draw.integers(shape.customers))
        previous = int(named[tenant])
        named[tenant] += shape.customers
        yield Move(at_s, tenant, int(named[tenant]), previous)


def _draws(shape: TrafficShape) -> dict[str, np.random.Generator]:
    seeds = np.random.SeedSequence(shape.seed).spawn(len(_STREAMS))
    return {name: np.random.default_rng(seed) for name, seed in zip(_STREAMS, seeds, strict=True)}


def _tenants(shape: TrafficShape, shares: Floats, times_s: Floats, draw: np.random.Generator) -> Ints:
    """Who calls: by popularity, or a customer who has risen, in proportion to what it adds to the rate."""
    ranks = popularity.ranks(shares, draw.random(len(times_s)))
    tenants = popularity.tenants(ranks, times_s, shape.drift, shape.customers)
    if not shape.rises:
        return tenants
    pick = draw.random(len(times_s)) * arrivals.rate_per_s(shape, times_s)
    reached = arrivals.common_rate_per_s(shape, times_s)
    for rise in shape.rises:
        begins, reached = reached, reached + arrivals.extra_per_s(rise, times_s)
        tenants = np.where((pick >= begins) & (pick < reached), rise.tenant, tenants)
    return tenants


class _Versions:
    """Which adapter each customer's alias names, as time goes on."""

    def __init__(self, shape: TrafficShape) -> None:
        self._named = np.arange(shape.customers)
        self._moves = moves(shape)
        self._next = next(self._moves, None)

    def named(self, tenants: Ints, times_s: Floats) -> Ints:
        """The adapter of every call; times go on where the last block ended."""
        adapters = self._named[tenants]
        while self._next is not None and self._next.at_s <= times_s[-1]:
            move = self._next
            self._named[move.tenant] = move.adapter
            after = np.searchsorted(times_s, move.at_s)
            adapters[after:][tenants[after:] == move.tenant] = move.adapter
            self._next = next(self._moves, None)
        return adapters
