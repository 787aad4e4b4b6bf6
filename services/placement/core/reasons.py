"""What a tick has changed and why, in sentences for the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from services.placement.core.decide import phase_changes
from services.placement.core.membership import Standing
from services.placement.core.pool import PoolMemory

_NAMED = 20
"""Adapters whose owner counts changed that are named one by one."""


def told(
    was: Mapping[str, Standing],
    standings: Mapping[str, Standing],
    before: Mapping[str, PoolMemory],
    after: Mapping[str, PoolMemory],
) -> tuple[str, ...]:
    sentences = [f"{c.replica_id} was {c.was} and is {c.phase}: {c.reason}" for c in phase_changes(was, standings)]
    sentences += _weights(was, standings)
    for pool_id, pool in after.items():
        if pool_id in before:
            sentences += [f"{pool_id}: {sentence}" for sentence in _of_pool(before[pool_id], pool)]
    return tuple(sentences)


def _weights(was: Mapping[str, Standing], standings: Mapping[str, Standing]) -> Iterator[str]:
    for name, standing in standings.items():
        old = was[name].member.weight if name in was else 1.0
        if standing.owns and old > 0 and standing.member.weight != old:
            yield f"{name} weighs {standing.member.weight:.3g} instead of {old:.3g}, by its slots, RAM and speed"


def _of_pool(before: PoolMemory, after: PoolMemory) -> Iterator[str]:
    names = [
        name for name in before.counts.keys() | after.counts.keys() if before.counts.get(name) != after.counts.get(name)
    ]
    for name in sorted(names)[:_NAMED]:
        yield f"{name} has {_count(after, name)} owners instead of {_count(before, name)}, {_why(after, name)}"
    if len(names) > _NAMED:
        yield f"{len(names) - _NAMED} more adapters have another number of owners"
    if len(after.late) > len(before.late):
        yield f"{len(after.late)} adapters wait for a holder's turn, so that nobody gets too many at once"
    if after.thrash.pressure is not before.thrash.pressure and after.thrash.pressure is not None:
        yield f"wishes for {after.thrash.pressure.replicas or 'no more'} replicas: {after.thrash.pressure.reason}"


def _count(pool: PoolMemory, name: str) -> str:
    return str(pool.counts[name]) if name in pool.counts else "the usual"


def _why(pool: PoolMemory, name: str) -> str:
    need, lift = pool.needs.get(name), pool.thrash.lifts.get(name)
    if lift is not None and (need is None or lift.owners >= need.owners):
        return "since its owners keep evicting and have no slot for it"
    return "for its traffic"
