"""One pool's turn: who should hold what, found anew only where something has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from services.placement.core import needs, owners, pressure, slots
from services.placement.core.catalog import Records
from services.placement.core.demand import Rate
from services.placement.core.heat import HeatPolicy, class_of
from services.placement.core.needs import NeedPolicy, Needs
from services.placement.core.owners import ChurnPolicy, Move, Moves, Owners
from services.placement.core.plan import Held, ReplicaPlan, Share, plan_replica
from services.placement.core.pressure import Crowd, Thrash, ThrashPolicy
from services.placement.core.slots import Busy
from shared.messages.desired import Member
from shared.nearest import Nearest

_SPARE_DEPTH = 2
"""Ranked beyond the usual owners, so that one who cannot own is passed over without ranking everybody."""


class PoolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`owners` is how many every adapter has."""

    owners: int = 2
    need: NeedPolicy = NeedPolicy()
    churn: ChurnPolicy = ChurnPolicy()
    thrash: ThrashPolicy = ThrashPolicy()
    heat: HeatPolicy = HeatPolicy()


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier placement has written of a pool: who holds each adapter, and who in a slot."""

    holders: Mapping[str, Owners] = {}
    slotted: Mapping[str, Owners] = {}


class PoolNow(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a pool's turn depends on. `members` are those that may own; `share` is what one owner should
    serve of one adapter, in tokens a second; `anew`: make every plan again, whatever has changed."""

    pool_id: str
    now_s: float
    records: Records
    members: Mapping[str, Member]
    held: Mapping[str, Held]
    heats: Mapping[str, int]
    rates: Mapping[str, Rate]
    share: float
    evictions_per_min: Mapping[str, float] = {}
    anew: bool = False


class PoolMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool's turn leaves for the next. `holders` are by adapter, `shares` the adapters by replica; `late` are
    the adapters with a holder whose turn has not come."""

    nearest: Nearest
    records: Records = {}
    members: Mapping[str, Member] = {}
    heats: Mapping[str, int] = {}
    needs: Needs = {}
    counts: Mapping[str, int] = {}
    """Of the adapters with more owners than usual."""
    thrash: Thrash = Thrash()
    holders: Mapping[str, Owners] = {}
    late: AbstractSet[str] = frozenset()
    moves: Moves = Moves()
    shares: Mapping[str, AbstractSet[str]] = {}
    pinned: AbstractSet[str] = frozenset()
    slotted: Mapping[str, Owners] = {}
    plans: Mapping[str, ReplicaPlan] = {}


def beginning(policy: PoolPolicy, recalled: Recalled, needed: Needs, thrash: Thrash) -> PoolMemory:
    return PoolMemory(
        nearest=Nearest(policy.owners + _SPARE_DEPTH, {}),
        needs=needed,
        thrash=thrash,
        holders=recalled.holders,
        slotted=recalled.slotted,
    )


def turn(before: PoolMemory, now: PoolNow, policy: PoolPolicy) -> PoolMemory:
    needed = _needs(before, now, policy)
    counts = _counts(needed, before.thrash, now, policy)
    nearest, concerned = _nearest(before, now)
    is_first = not before.plans
    edited = now.records.keys() if is_first else _edited(before.records, now.records)
    touched = {
        *(before.holders if is_first else ()),
        *concerned,
        *edited,
        *before.late,
        *_differing(before.counts, counts),
    }
    holders, late, moves = _hold(before, now, policy, _Asked(nearest, counts, touched))
    heats = {**now.heats, **{name: max(need.heat, now.heats.get(name, 0)) for name, need in needed.items()}}
    pinned = before.pinned if now.records is before.records else _pinned(now.records)
    busy = tuple(_busy(now, holders, heats, _Wish(needed, pinned)))
    slotted = slots.given(busy, {name: member.slots for name, member in now.members.items()}, before.slotted)
    after = PoolMemory(
        nearest=nearest,
        records=now.records,
        members=now.members,
        heats=heats,
        needs=needed,
        counts=counts,
        thrash=pressure.looked_at(before.thrash, _crowd(now, busy, slotted), now.now_s, policy.thrash),
        holders=holders,
        late=late,
        moves=moves,
        shares=_shares(before, holders, touched, now.members),
        pinned=pinned,
        slotted=slotted,
    )
    stale = now.members.keys() if now.anew or is_first else _stale(before, after, edited, touched)
    return msgspec.structs.replace(after, plans=_plans(before, after, now, stale))


class _Wish(msgspec.Struct, frozen=True):
    """Who should have more than one slot."""

    needs: Needs
    pinned: AbstractSet[str]


class _Asked(msgspec.Struct, frozen=True):
    """The rankings and counts of now, and the adapters for which they may have changed."""

    nearest: Nearest
    counts: Mapping[str, int]
    touched: AbstractSet[str]


def _needs(before: PoolMemory, now: PoolNow, policy: PoolPolicy) -> dict[str, needs.Need]:
    found = needs.needed(before.needs, now.rates, now.share, now.now_s, policy.need)
    for name, need in found.items():
        if not need.heat and name in now.rates:
            heat = max(1, class_of(None, now.rates[name].requests_per_s, policy.heat))
            found[name] = msgspec.structs.replace(need, heat=heat)
    return {name: need for name, need in found.items() if name in now.records}


def _counts(needed: Needs, thrash: Thrash, now: PoolNow, policy: PoolPolicy) -> dict[str, int]:
    wanted = {name: need.owners for name, need in needed.items()}
    for name, lift in thrash.lifts.items():
        if name in now.records:
            wanted[name] = max(lift.owners, wanted.get(name, 0))
    bounded = {name: min(count, len(now.members)) for name, count in wanted.items()}
    return {name: count for name, count in sorted(bounded.items()) if count > policy.owners}


def _nearest(before: PoolMemory, now: PoolNow) -> tuple[Nearest, tuple[str, ...]]:
    weights = {name: member.weight for name, member in now.members.items()}
    nearest, concerned = before.nearest.on(weights)
    if now.records is not before.records:
        nearest = nearest.adding(now.records)
        if len(nearest) > 2 * len(now.records) + 1_000:  # most of them have been deleted
            nearest = Nearest(nearest.depth, weights).adding(now.records)
    return nearest, concerned


def _hold(
    before: PoolMemory, now: PoolNow, policy: PoolPolicy, asked: _Asked
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
        is_forced = not left or len(left) < len(had)
        if is_forced or set(left) == set(should):
            holders[name] = should
        else:
            moves.append(Move(name, before.heats.get(name, 0), left, should, is_forced))
    stepped, given = owners.settled(moves, before.moves, now.now_s, policy.churn)
    holders.update(stepped)
    return holders, {move.adapter_id for move in moves if stepped[move.adapter_id] != move.should}, given


def _owned(now: PoolNow, policy: PoolPolicy, asked: _Asked) -> Iterator[tuple[str, Owners]]:
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


def _busy(now: PoolNow, holders: Mapping[str, Owners], heats: Mapping[str, int], wish: _Wish) -> Iterator[Busy]:
    """Only once a gateway may send traffic."""
    for name in heats.keys() | wish.pinned:
        record = now.records.get(name)
        if record is None or record.status != "active":
            continue
        held = holders.get(name, ())
        wanted = len(held) if record.pinned else wish.needs[name].owners if name in wish.needs else 1
        yield Busy(name, record.pinned, heats.get(name, 0), held, wanted)


def _pinned(records: Records) -> set[str]:
    return {name for name, record in records.items() if record.pinned}


def _crowd(now: PoolNow, busy: tuple[Busy, ...], slotted: Mapping[str, Owners]) -> Crowd:
    return Crowd(
        pool_id=now.pool_id,
        busy=busy,
        slots={name: member.slots for name, member in now.members.items()},
        given=slotted,
        evictions_per_min={name: now.evictions_per_min.get(name, 0.0) for name in now.members},
    )


def _shares(
    before: PoolMemory, holders: Mapping[str, Owners], touched: AbstractSet[str], members: Mapping[str, Member]
) -> dict[str, AbstractSet[str]]:
    """The adapters of every member."""
    if len(touched) > len(holders) // 4:
        shares: dict[str, set[str]] = {name: set() for name in members}
        for adapter_id, held in holders.items():
            for name in held:
                shares[name].add(adapter_id)
        return dict(shares)
    opened: dict[str, set[str]] = {}
    for adapter_id in touched:
        old, new = before.holders.get(adapter_id, ()), holders.get(adapter_id, ())
        for name in {*old, *new} & members.keys() if old != new else ():
            share = opened.setdefault(name, set(before.shares.get(name, ())))
            share.discard(adapter_id)
            if name in new:
                share.add(adapter_id)
    return {name: opened.get(name, before.shares.get(name, frozenset())) for name in members}


def _stale(
    before: PoolMemory, after: PoolMemory, edited: AbstractSet[str], touched: AbstractSet[str]
) -> AbstractSet[str]:
    """The members whose plan may have to change."""
    stale = {name for name, member in after.members.items() if _budgets(before.members.get(name)) != _budgets(member)}
    changed = {*edited, *(name for name in touched if before.holders.get(name) != after.holders.get(name))}
    changed.update(_differing(before.heats, after.heats), _differing(before.slotted, after.slotted))
    for adapter_id in changed:
        stale.update(before.holders.get(adapter_id, ()), after.holders.get(adapter_id, ()))
    return stale & after.members.keys()


def _budgets(member: Member | None) -> tuple[int, ...]:
    if member is None:
        return ()
    return member.slots, member.rank_limit, member.ram_budget_bytes, member.disk_budget_bytes


def _plans(before: PoolMemory, after: PoolMemory, now: PoolNow, stale: AbstractSet[str]) -> dict[str, ReplicaPlan]:
    plans = {}
    for name, member in now.members.items():
        if name in stale or name not in before.plans:
            shares = _shares_of(name, after)
            plans[name] = plan_replica(member, shares, now.held.get(name, {}))
        else:
            plans[name] = before.plans[name]
    return plans


def _shares_of(replica_id: str, after: PoolMemory) -> list[Share]:
    records, holders, heats, slotted = after.records, after.holders, after.heats, after.slotted
    return [
        Share(
            records[name],
            holders[name].index(replica_id),
            heats.get(name, 0),
            replica_id in slotted[name] if name in slotted else None,
        )
        for name in after.shares[replica_id]
    ]


def _edited(before: Records, after: Records) -> set[str]:
    if before is after:
        return set()
    changed = {name for name, record in after.items() if before.get(name) is not record}
    return changed | (before.keys() - after.keys())


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    if before is after:
        return set()
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
