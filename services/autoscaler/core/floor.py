"""The shape of the day: what each slot of it needed on the last days is a floor for today."""

from __future__ import annotations

import math

import msgspec

from services.autoscaler.core.memory import DayShape
from services.autoscaler.core.need import NOTHING, Need
from services.autoscaler.core.policy import FloorPolicy

_DAY_S = 86_400.0


def learnt(shape: DayShape, day_s: float | None, replicas: float, policy: FloorPolicy) -> DayShape:
    """The shape after one more need at that time of day. The slot that is under way is no part of it yet."""
    if not policy.enabled or day_s is None:
        return shape
    slot = _slot(day_s, policy)
    if slot == shape.slot:
        return msgspec.structs.replace(shape, largest=max(shape.largest, replicas))
    if shape.slot is None:
        return msgspec.structs.replace(shape, slot=slot, largest=replicas)
    days = (*shape.needs.get(shape.slot, ()), shape.largest)[-policy.days :]
    return DayShape(needs={**shape.needs, shape.slot: days}, slot=slot, largest=replicas)


def floor_of(shape: DayShape, day_s: float | None, policy: FloorPolicy) -> Need:
    """What the time of day that is about to come needed: the quantile over the days that are known."""
    if not policy.enabled or day_s is None:
        return NOTHING
    days = sorted(shape.needs.get(_slot(day_s + policy.lead_s, policy), ()))
    if not days:
        return NOTHING
    replicas = days[min(len(days) - 1, math.floor(policy.quantile * len(days)))]
    return Need(replicas=replicas, reason=f"this time of day needed {replicas:.1f} on {len(days)} last days")


def _slot(day_s: float, policy: FloorPolicy) -> int:
    return int((day_s % _DAY_S) // policy.slot_s)
