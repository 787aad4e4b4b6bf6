"""One pool's turn: who should hold what, found anew only where something has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from services.placement.core import holding, needs, pressure, slots
from services.placement.core.catalog import Records
from services.placement.core.heat import class_of
from services.placement.core.holding import Asked
from services.placement.core.needs import Need, NeedPolicy, Needs
from services.placement.core.owners import Owners
from services.placement.core.plan import ReplicaPlan, Share, plan_replica
from services.placement.core.pool import PoolMemory, PoolNow, PoolPolicy
from services.placement.core.pressure import Crowd, Thrash
from services.placement.core.slots import Busy
from shared.messages.desired import Member

_BACKED = 2
"""Slots for a busy adapter while there are enough."""
_ONE = Need(1)


def turn(before: PoolMemory, now: PoolNow, policy: PoolPolicy) -> PoolMemory:
    needed = _needs(before, now, policy)
    counts = _counts(needed, before.thrash, now, policy)
    nearest, concerned = holding.nearest_owners(before, now)
    is_first = not before.plans
    edited = now.records.keys() if is_first else _edited(before.records, now.records)
    touched = {
        *(before.holders if is_first else ()),
        *concerned,
        *holding.deep(before, now, counts, nearest),
        *edited,
        *before.late,
        *_differing(before.counts, counts),
    }
    holders, late, moves = holding.held(before, now, policy, Asked(nearest, counts, touched))
    heats = {**now.heats, **{name: max(need.heat, now.heats.get(name, 0)) for name, need in needed.items()}}
    pinned = before.pinned if now.records is before.records else _pinned(now.records)
    busy = _backed(list(_busy(now, holders, heats, _Wish(needed, pinned, policy.need))), now)
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
        shares=holding.shares(before, holders, touched, now.members),
        pinned=pinned,
        slotted=slotted,
    )
    stale = now.members.keys() if now.anew or is_first else _stale(before, after, edited, touched)
    return msgspec.structs.replace(after, plans=_plans(before, after, now, stale))


class _Wish(msgspec.Struct, frozen=True):
    """Who should have more than one slot."""

    needs: Needs
    pinned: AbstractSet[str]
    policy: NeedPolicy


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


def _busy(now: PoolNow, holders: Mapping[str, Owners], heats: Mapping[str, int], wish: _Wish) -> Iterator[Busy]:
    """Only once a gateway may send traffic."""
    for name in heats.keys() | wish.pinned:
        record = now.records.get(name)
        if record is None or record.status != "active":
            continue
        held = holders.get(name, ())
        need, heat = wish.needs.get(name, _ONE), heats.get(name, 0)
        wanted = len(held) if record.pinned else needs.least_slots(need, wish.policy)
        yield Busy(name, record.pinned, heat, held, wanted, max(_BACKED, need.owners) if heat else wanted)


def _backed(busy: list[Busy], now: PoolNow) -> tuple[Busy, ...]:
    """With more slots for the hottest, once everybody could have one."""
    everybody = slots.wanted(busy) + len(now.records) - len(busy)
    return tuple(slots.backed(busy, sum(member.slots for member in now.members.values()) - everybody))


def _pinned(records: Records) -> set[str]:
    return {name for name, record in records.items() if record.pinned}


def _crowd(now: PoolNow, busy: tuple[Busy, ...], slotted: Mapping[str, Owners]) -> Crowd:
    """Slots of a replica without weight help nobody: it is to own nothing."""
    return Crowd(
        pool_id=now.pool_id,
        busy=busy,
        slots={name: member.slots for name, member in now.members.items() if member.weight > 0},
        given=slotted,
        evictions_per_min={name: now.evictions_per_min.get(name, 0.0) for name in now.members},
    )


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
