"""One pool's turn: who should hold what, found anew only where something has changed."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from services.placement.core import holding, needs, pressure, seating
from services.placement.core.catalog import Records
from services.placement.core.heat import class_of
from services.placement.core.holding import Asked
from services.placement.core.needs import Need, Needs
from services.placement.core.plan import ReplicaPlan, Share, plan_replica
from services.placement.core.pool import PoolMemory, PoolNow, PoolPolicy
from services.placement.core.pressure import Crowd, Thrash
from services.placement.core.seating import Guests, Seating
from shared.messages.desired import Member

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
    heats = _kept(before.heats, {**now.heats, **_hotter(needed, now.heats)})
    pinned = before.pinned if now.records is before.records else _pinned(now.records)
    slots = {name: member.slots for name, member in now.members.items()}
    guests = Guests(now.records, holders, heats, pinned, seating.owners_of(needed), slots)
    seats = seating.seated(before.seating, guests, policy.need)
    after = PoolMemory(
        nearest=nearest,
        records=now.records,
        members=now.members,
        heats=heats,
        needs=needed,
        counts=counts,
        thrash=pressure.looked_at(before.thrash, _crowd(now, seats), now.now_s, policy.thrash),
        holders=holders,
        late=late,
        moves=moves,
        shares=holding.shares(before, holders, touched, now.members),
        pinned=pinned,
        seating=seats,
    )
    stale = now.members.keys() if now.anew or is_first else _stale(before, after, edited, touched)
    return msgspec.structs.replace(after, plans=_plans(before, after, now, stale))


def _hotter(needed: Needs, heats: Mapping[str, int]) -> dict[str, int]:
    """Those that are busier than when it was last looked at."""
    return {name: need.heat for name, need in needed.items() if need.heat > heats.get(name, 0)}


def _kept(before: Mapping[str, int], after: Mapping[str, int]) -> Mapping[str, int]:
    """The same object where nothing has changed: that is how it is known."""
    return before if before == after else after


def _needs(before: PoolMemory, now: PoolNow, policy: PoolPolicy) -> dict[str, Need]:
    """Who comes to more owners than usual is known to be busy before anybody looks how busy everybody is; and who comes
    to fewer of them, as busy as it is then."""
    found = needs.needed(before.needs, now.rates, now.share, now.now_s, policy.need)
    for name, need in found.items():
        if not need.heat and need.owners > policy.owners and name in now.rates:
            heat = max(1, class_of(None, now.rates[name].requests_per_s, policy.heat))
            was = before.needs.get(name, _ONE)
            known = was.heat if need.owners > was.owners else 0
            found[name] = msgspec.structs.replace(need, heat=max(heat, known))
    return {name: need for name, need in found.items() if name in now.records}


def _counts(needed: Needs, thrash: Thrash, now: PoolNow, policy: PoolPolicy) -> dict[str, int]:
    wanted = {name: need.owners for name, need in needed.items()}
    for name, lift in thrash.lifts.items():
        if name in now.records:
            wanted[name] = max(lift.owners, wanted.get(name, 0))
    bounded = {name: min(count, len(now.members)) for name, count in wanted.items()}
    return {name: count for name, count in sorted(bounded.items()) if count > policy.owners}


def _pinned(records: Records) -> set[str]:
    return {name for name, record in records.items() if record.pinned}


def _crowd(now: PoolNow, seats: Seating) -> Crowd:
    """Slots of a replica without weight help nobody: it is to own nothing."""
    return Crowd(
        pool_id=now.pool_id,
        busy=seats.busy,
        slots={name: member.slots for name, member in now.members.items() if member.weight > 0},
        given=seats.slotted,
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
    if before is after or before == after:
        return set()
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
