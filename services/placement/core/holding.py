"""Who holds which adapter of a pool: what every reader ranks for itself, reached in steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from services.placement.core import owners
from services.placement.core.owners import Move, Moves, Owners
from services.placement.core.pool import PoolMemory, PoolNow, PoolPolicy
from shared.messages.desired import Member
from shared.nearest import Nearest


class Asked(msgspec.Struct, frozen=True):
    """The rankings and counts of now, and the adapters for which they may have changed."""

    nearest: Nearest
    counts: Mapping[str, int]
    touched: AbstractSet[str]


def nearest_owners(before: PoolMemory, now: PoolNow) -> tuple[Nearest, tuple[str, ...]]:
    weights = {name: member.weight for name, member in now.members.items()}
    nearest, concerned = before.nearest.on(weights)
    if now.records is not before.records:
        nearest = nearest.adding(now.records)
        if len(nearest) > 2 * len(now.records) + 1_000:  # most of them have been deleted
            nearest = Nearest(nearest.depth, weights).adding(now.records)
    return nearest, concerned


def deep(before: PoolMemory, now: PoolNow, counts: Mapping[str, int], nearest: Nearest) -> AbstractSet[str]:
    """Adapters whose owners are found beyond what `nearest` keeps, and may be others now: those with many owners, and
    where ranks are limited differently, any."""
    limits = {member.rank_limit for member in now.members.values()}
    if limits != {member.rank_limit for member in before.members.values()} or _has_another_limit(before, now):
        return now.records.keys()
    if nearest.field is before.nearest.field:
        return frozenset()
    return counts.keys() | before.counts.keys() if len(limits) == 1 else now.records.keys()


def _has_another_limit(before: PoolMemory, now: PoolNow) -> bool:
    both = before.members.keys() & now.members.keys()
    return any(before.members[name].rank_limit != now.members[name].rank_limit for name in both)


def held(
    before: PoolMemory, now: PoolNow, policy: PoolPolicy, asked: Asked
) -> tuple[Mapping[str, Owners], AbstractSet[str], Moves]:
    """Who holds each adapter from now on, and which of them wait for a holder's turn."""
    if not asked.touched:
        return before.holders, before.late, before.moves
    holders = dict(before.holders)
    for name in asked.touched - now.records.keys():
        holders.pop(name, None)
    moves = []
    for name, should in _owned(now, policy, asked):
        had = holders.get(name, ())
        if had == should:
            continue
        left = tuple(owner for owner in had if owner in now.members)
        somebody_is_gone = not left or len(left) < len(had)
        if somebody_is_gone or set(left) == set(should):
            holders[name] = should
        else:
            moves.append(Move(name, before.heats.get(name, 0), left, should, _having(name, should, now)))
    stepped, given = owners.settled(moves, before.moves, now.now_s, policy.churn)
    holders.update(stepped)
    return holders, {move.adapter_id for move in moves if stepped[move.adapter_id] != move.should}, given


def _having(adapter_id: str, should: Owners, now: PoolNow) -> Owners:
    key = now.records[adapter_id].key
    return tuple(name for name in should if key in now.held.get(name, ()))


def _owned(now: PoolNow, policy: PoolPolicy, asked: Asked) -> Iterator[tuple[str, Owners]]:
    """The touched adapters with the owners that every reader finds for them."""
    names = [name for name in asked.touched if name in now.records]
    everywhere = min((member.rank_limit for member in now.members.values()), default=0)
    depth = min(asked.nearest.depth, len(now.members))
    for name, ranking in zip(names, asked.nearest.of(names), strict=True):
        count, needed_rank = asked.counts.get(name, policy.owners), now.records[name].rank
        if needed_rank <= everywhere and count <= depth:
            yield name, ranking[:count]
            continue
        found = owners.first_fitting(ranking, now.members, needed_rank, count)
        if len(found) < count and depth < len(now.members):
            found = owners.first_fitting(asked.nearest.field.rank(name), now.members, needed_rank, count)
        yield name, found


def shares(
    before: PoolMemory, holders: Mapping[str, Owners], touched: AbstractSet[str], members: Mapping[str, Member]
) -> dict[str, AbstractSet[str]]:
    """The adapters of every member."""
    if len(touched) > len(holders) // 4:
        found: dict[str, set[str]] = {name: set() for name in members}
        for adapter_id, held in holders.items():
            for name in held:
                found[name].add(adapter_id)
        return dict(found)
    opened: dict[str, set[str]] = {}
    for adapter_id in touched:
        old, new = before.holders.get(adapter_id, ()), holders.get(adapter_id, ())
        for name in {*old, *new} & members.keys() if old != new else ():
            share = opened.setdefault(name, set(before.shares.get(name, ())))
            share.discard(adapter_id)
            if name in new:
                share.add(adapter_id)
    return {name: opened.get(name, before.shares.get(name, frozenset())) for name in members}
