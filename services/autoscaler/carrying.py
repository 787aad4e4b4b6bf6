"""Carrying out what is decided, beside the turns that decide: an actuator may be slow, or fail, and holds nobody up."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.io.actuator import Actuator, ActuatorFailed
from services.autoscaler.io.meters import Meters
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

CARRY_S = 2.0
"""How often every order is told again, whole."""

_FIRST_RETRY_S = 2.0
_LONGEST_RETRY_S = 60.0
_DOUBLINGS = 10
"""More than the longest pause has; any number of failures would not fit a float."""

_log = get_logger(__name__)


class _Trouble(msgspec.Struct, frozen=True, kw_only=True):
    sentence: str
    failures: int
    retry_at_s: float


class Carrier:
    """`turn` is to be called every CARRY_S, never twice at a time. `may_act` says whether an order of that epoch may
    still be carried out."""

    def __init__(self, actuator: Actuator, clock: Clock, meters: Meters, may_act: Callable[[int], bool]) -> None:
        self._actuator = actuator
        self._clock = clock
        self._meters = meters
        self._may_act = may_act
        self._orders: dict[str, ScaleOrder] = {}
        self._pools: dict[str, PoolSpec] = {}
        self._existing: dict[str, frozenset[str] | None] = {}
        self._trouble: dict[str, _Trouble] = {}

    @property
    def starts_merged(self) -> bool:
        return self._actuator.starts_merged

    def existing(self, pool_id: str, heard: frozenset[str]) -> frozenset[str] | None:
        """The actuator's last answer; None: it cannot know. Until it has answered, whoever is heard exists."""
        return self._existing.get(pool_id, heard)

    def is_unsure(self, pool_id: str) -> bool:
        """It was asked about and has not been answered yet."""
        return pool_id in self._pools and pool_id not in self._existing

    def is_known(self, pool_id: str) -> bool:
        """The actuator has said which replicas of it there are, if any."""
        return self._existing.get(pool_id) is not None

    def removal_order(self, pool_id: str) -> tuple[str, ...] | None:
        existing = self._existing.get(pool_id)
        return None if existing is None else self._actuator.removal_order(self._pools[pool_id], existing)

    async def meet(self, pools: Iterable[PoolSpec]) -> None:
        """Ask about the pools that are new, at once: who decides without an answer might drain what nobody removes.
        One that turns out to be a customer's own is another question."""
        new = [pool for pool in pools if self._pools.get(pool.pool_id) != pool]
        self._pools |= {pool.pool_id: pool for pool in new}
        for pool in new:
            await self._carry(pool)

    def tell(self, orders: Iterable[ScaleOrder]) -> None:
        """What is to be carried out from the next turn on: the latest word counts."""
        self._orders = {order.pool.pool_id: order for order in orders}

    def forget(self, pool_id: str) -> None:
        """It is over: there is nothing to ask about or to carry out."""
        self._orders.pop(pool_id, None)
        self._pools.pop(pool_id, None)
        self._existing.pop(pool_id, None)
        self._trouble.pop(pool_id, None)

    async def turn(self) -> None:
        for pool_id, pool in list(self._pools.items()):
            trouble = self._trouble.get(pool_id)
            if trouble is None or self._clock.now_s() >= trouble.retry_at_s:
                await self._carry(pool)

    async def _carry(self, pool: PoolSpec) -> None:
        """Orders come first: what exists is then what the next decision finds."""
        try:
            order = self._orders.get(pool.pool_id)
            if order is not None and self._may_act(order.epoch):
                await self._actuator.apply(order)
            self._existing[pool.pool_id] = await self._actuator.existing(pool)
        except ActuatorFailed as error:
            self._failed(pool.pool_id, str(error))
        else:
            if self._trouble.pop(pool.pool_id, None):
                _log.info("the pool's replicas can be changed again", pool_id=pool.pool_id)

    def _failed(self, pool_id: str, sentence: str) -> None:
        before = self._trouble.get(pool_id)
        failures = before.failures + 1 if before else 1
        wait_s = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(failures - 1, _DOUBLINGS))
        self._trouble[pool_id] = _Trouble(sentence=sentence, failures=failures, retry_at_s=self._clock.now_s() + wait_s)
        self._meters.failed(pool_id)
        if before is None or before.sentence != sentence:
            _log.error("the pool's replicas could not be changed; it is tried again", pool_id=pool_id, error=sentence)
