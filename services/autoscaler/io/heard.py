"""What the autoscaler hears: subscriptions and watches folded into one view. No decision is made here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from services.autoscaler.core.demand import DemandPolicy, Tally, heard, of_pool
from services.autoscaler.core.fold import Facts, HeardGateway, HeardReplica, newer
from services.autoscaler.core.merged import Customers, customers_after
from shared.bus.port import Bus, Change, Ids, Subscription
from shared.contracts.catalog import (
    ADAPTER,
    DRAIN,
    GATEWAY_ACTIVITY,
    GATEWAY_REPORT,
    MEMBERSHIP,
    PRESSURE,
    REPLICA_REPORT,
)
from shared.messages.activity import GatewayActivity
from shared.messages.desired import AdapterRecord, DrainOrder, Membership, PoolPressure
from shared.messages.reports import GatewayReport, ReplicaReport
from shared.runtime.clock import Clock
from shared.ttft_by_customer import TtftByCustomer

M = TypeVar("M")

OURS = "autoscaler: "
"""How the reasons of our own drain orders begin: all others are a person's, and none of our business."""

_FORGOTTEN_AFTER_S = 300.0


class Heard:
    """`customers` are only followed with `follow_customers`: there are thousands of them."""

    def __init__(
        self, bus: Bus, clock: Clock, windows: DemandPolicy, ttft: TtftByCustomer, *, follow_customers: bool
    ) -> None:
        self.customers: Customers = {}
        self.records: dict[str, AdapterRecord] = {}
        self.orders: dict[str, DrainOrder] = {}
        """Every order to drain, whoever wrote it."""
        self.gateways: dict[str, HeardGateway] = {}
        self.ttft = ttft
        self._bus = bus
        self._clock = clock
        self._windows = windows
        self._follow_customers = follow_customers
        self._replicas: dict[str, HeardReplica] = {}
        self._tallies: dict[str, Tally] = {}
        self._pressures: dict[str, PoolPressure] = {}
        self._memberships: dict[str, Membership] = {}
        self._adapter_ids: dict[Ids, str] = {}
        self._open: list[Subscription] = []

    async def start(self) -> None:
        """Returns once all desired state has been heard. Raises BusUnavailable; `stop` ends what began."""
        self._open.append(await self._bus.subscribe(REPLICA_REPORT, self._on_replica))
        self._open.append(await self._bus.subscribe(GATEWAY_REPORT, self._on_gateway))
        self._open.append(await self._bus.subscribe(GATEWAY_ACTIVITY, self._on_activity))
        self._open.append(await self._bus.state(DRAIN).watch(self._on_drain))
        self._open.append(await self._bus.state(PRESSURE).watch(self._on_pressure))
        self._open.append(await self._bus.state(MEMBERSHIP).watch(self._on_membership))
        if self._follow_customers:
            self._open.append(await self._bus.state(ADAPTER).watch(self._on_adapter))

    async def stop(self) -> None:
        while self._open:
            await self._open.pop().close()

    @property
    def replicas(self) -> Mapping[str, HeardReplica]:
        return self._replicas

    @property
    def own_orders(self) -> frozenset[str]:
        return frozenset(name for name, order in self.orders.items() if order.reason.startswith(OURS))

    def facts(self) -> Facts:
        """The view now, less those who have been silent for very long."""
        now_s = self._clock.now_s()
        self._replicas = {k: v for k, v in self._replicas.items() if now_s - v.at_s <= _FORGOTTEN_AFTER_S}
        self.gateways = {k: v for k, v in self.gateways.items() if now_s - v.at_s <= _FORGOTTEN_AFTER_S}
        return Facts(
            replicas=dict(self._replicas),
            weights={
                member.replica_id: member.weight
                for membership in self._memberships.values()
                for member in membership.members
            },
            held=frozenset(self.orders) - self.own_orders,
            pressures=dict(self._pressures),
            tallies=dict(self._tallies),
        )

    async def _on_replica(self, report: ReplicaReport, ids: Ids) -> None:
        before = self._replicas.get(report.replica_id)
        self._replicas[report.replica_id] = newer(before, report, self._clock.now_s())

    async def _on_gateway(self, report: GatewayReport, ids: Ids) -> None:
        self.gateways[report.gateway_id] = HeardGateway(report=report, at_s=self._clock.now_s())

    async def _on_activity(self, said: GatewayActivity, ids: Ids) -> None:
        now_s = self._clock.now_s()
        for pool_id, activity in said.pools.items():
            before = self._tallies.get(pool_id)
            self._tallies[pool_id] = heard(before, of_pool(activity), said.interval_s, now_s, self._windows)
            for adapter_id, adapter in activity.adapters.items():
                for bucket, count in adapter.first_tokens.items():
                    self.ttft.add(adapter_id, bucket, count, now_s)
        if self._follow_customers:
            self.customers = customers_after(self.customers, said, now_s, self._windows)

    async def _on_drain(self, change: Change[DrainOrder]) -> None:
        _follow(self.orders, change.ids[0], change.value)

    async def _on_pressure(self, change: Change[PoolPressure]) -> None:
        _follow(self._pressures, change.ids[0], change.value)

    async def _on_membership(self, change: Change[Membership]) -> None:
        _follow(self._memberships, change.ids[0], change.value)

    async def _on_adapter(self, change: Change[AdapterRecord]) -> None:
        if change.value is not None:
            self._adapter_ids[change.ids] = change.value.adapter_id
            self.records[change.value.adapter_id] = change.value
        elif (adapter_id := self._adapter_ids.pop(change.ids, None)) is not None:
            self.records.pop(adapter_id, None)


def _follow(held: dict[str, M], key: str, value: M | None) -> None:
    if value is None:
        held.pop(key, None)
    else:
        held[key] = value
