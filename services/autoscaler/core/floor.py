"""The shape of the day: what each slot of it needed on the last days is a floor for today."""

from __future__ import annotations

import math

import msgspec

from services.autoscaler.core.memory import DayShape
from services.autoscaler.core.need import NOTHING, Need
from services.autoscaler.core.policy import FloorPolicy
from shared.messages.desired import DaySlot, PoolDayShape

_DAY_S = 86_400.0


def learnt(shape: DayShape, day_s: float | None, replicas: float, policy: FloorPolicy) -> DayShape:
    """The shape after one more need at that time of day. The slot that is under way is no part of it yet."""
    if not policy.enabled or day_s is None:
        return shape
    slot = _slot(day_s, policy)
    if slot == shape.slot:
        return msgspec.structs.replace(shape, largest=max(shape.largest, replicas))
    return msgspec.structs.replace(_closed(shape, policy), slot=slot, largest=replicas)


def floor_of(shape: DayShape, day_s: float | None, policy: FloorPolicy) -> Need:
    """What the time of day that is about to come needed: the quantile over the days that are known."""
    if not policy.enabled or day_s is None:
        return NOTHING
    days = sorted(shape.needs.get(_slot(day_s + policy.lead_s, policy), ()))
    if not days:
        return NOTHING
    replicas = days[min(len(days) - 1, math.floor(policy.quantile * len(days)))]
    return Need(replicas=replicas, reason=f"this time of day needed {replicas:.1f} on {len(days)} last days")


def kept(pool_id: str, shape: DayShape, wall_s: float, policy: FloorPolicy) -> PoolDayShape | None:
    """What whoever leads next should know; None while nothing was learnt."""
    if shape.slot is None:
        return None
    slots = tuple(DaySlot(slot=slot, replicas=days) for slot, days in sorted(shape.needs.items()))
    return PoolDayShape(
        pool_id=pool_id, slot_s=policy.slot_s, slots=slots, slot=shape.slot, largest=shape.largest, at_s=wall_s
    )


def recalled(said: PoolDayShape | None, wall_s: float, policy: FloorPolicy) -> DayShape:
    """The shape that was kept. Nothing of one that is older than the days it is made of, of one with other slots, and
    of one that no day can have had."""
    if said is None or not policy.enabled or said.slot_s != policy.slot_s or not _is_sound(said):
        return DayShape()
    age_s = wall_s - said.at_s
    if not -policy.slot_s <= age_s <= policy.days * _DAY_S:
        return DayShape()
    shape = DayShape(
        needs={one.slot: one.replicas[-policy.days :] for one in said.slots}, slot=said.slot, largest=said.largest
    )
    # The same slot of another day is another one: the old one is over.
    return shape if age_s < policy.slot_s else _closed(shape, policy)


def _is_sound(said: PoolDayShape) -> bool:
    count = math.ceil(_DAY_S / said.slot_s)
    needs = [said.largest, *(need for one in said.slots for need in one.replicas)]
    numbers = [said.slot, *(one.slot for one in said.slots)]
    return all(0.0 <= need < math.inf for need in needs) and all(0 <= slot < count for slot in numbers)


def _closed(shape: DayShape, policy: FloorPolicy) -> DayShape:
    """With the slot under way as one of the days. None is under way then."""
    if shape.slot is None:
        return shape
    days = (*shape.needs.get(shape.slot, ()), shape.largest)[-policy.days :]
    return DayShape(needs={**shape.needs, shape.slot: days})


def _slot(day_s: float, policy: FloorPolicy) -> int:
    return int((day_s % _DAY_S) // policy.slot_s)
