"""An actuator that starts and stops replicas on paper, and fails when told to."""

from __future__ import annotations

import itertools

from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.io.actuator import ActuatorFailed


class PaperActuator:
    starts_merged = True

    def __init__(self) -> None:
        self.there: dict[str, set[str]] = {}
        self.orders: list[ScaleOrder] = []
        self.broken = ""
        self.in_order = False
        self._names = (f"n{number}" for number in itertools.count(1))

    async def existing(self, pool: PoolSpec) -> frozenset[str] | None:
        self._fail_if_told()
        return frozenset(self.there.get(pool.pool_id, ()))

    def removal_order(self, pool: PoolSpec, existing: frozenset[str]) -> tuple[str, ...] | None:
        return tuple(sorted(existing, reverse=True)) if self.in_order else None

    async def apply(self, order: ScaleOrder) -> None:
        self._fail_if_told()
        self.orders.append(order)
        there = self.there.setdefault(order.pool.pool_id, set())
        there -= set(order.remove)
        while len(there) < order.desired:
            there.add(next(self._names))

    def _fail_if_told(self) -> None:
        if self.broken:
            raise ActuatorFailed(self.broken)
