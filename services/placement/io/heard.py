"""What placement hears: subscriptions and watches folded into one view. No decision is made here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from services.placement.core import demand
from services.placement.core.decide import Facts, rank_classes_of
from services.placement.core.demand import Demand, DemandPolicy
from services.placement.core.listening import Listening, policy_for
from services.placement.core.membership import MembershipPolicy, Seen, is_forgotten, observe, recall
from shared.bus.port import Bus, Change, Ids, Subscription
from shared.contracts.catalog import (
    ADAPTER,
    BASE_MODEL,
    DRAIN,
    GATEWAY_ACTIVITY,
    REPLICA_REPORT,
    REPLICA_RESIDENCY,
    TRAFFIC,
)
from shared.messages.activity import GatewayActivity
from shared.messages.desired import AdapterRecord, BaseModelRecord, DrainOrder, Membership
from shared.messages.identity import AdapterKey
from shared.messages.reports import ReplicaReport, Residency, ResidencyView, fold_residency
from shared.messages.usage import PoolTraffic
from shared.runtime.clock import Clock

M = TypeVar("M")


class Heard:
    """`changed` turns true with everything that may call for another plan, and is for the reader to reset."""

    def __init__(self, bus: Bus, clock: Clock, policy: MembershipPolicy, demand_policy: DemandPolicy) -> None:
        self.changed = False
        self._bus = bus
        self._clock = clock
        self._policy = policy
        self._demand_policy = demand_policy
        self._ears = policy_for(policy.lost_after_s, policy.lost_grace_s)
        self._listening = Listening(last_s=clock.now_s())
        self._seen: dict[str, Seen] = {}
        self._residency: dict[str, ResidencyView] = {}
        self._adapters: dict[Ids, AdapterRecord] = {}
        self._by_key: dict[AdapterKey, AdapterRecord] = {}
        self._told: Mapping[AdapterKey, AdapterRecord] | None = {}
        """The same as it was last handed out; None once it is out of date."""
        self._models: dict[Ids, BaseModelRecord] = {}
        self._drained: set[str] = set()
        self._traffic: dict[str, PoolTraffic] = {}
        self._activity = Demand()
        self._open: list[Subscription] = []

    async def start(self) -> None:
        """Returns once all desired state has been heard. Raises BusUnavailable; `stop` ends what began."""
        self._open.append(await self._bus.subscribe(REPLICA_REPORT, self._on_report))
        self._open.append(await self._bus.subscribe(REPLICA_RESIDENCY, self._on_residency))
        self._open.append(await self._bus.subscribe(GATEWAY_ACTIVITY, self._on_activity))
        self._open.append(await self._bus.state(BASE_MODEL).watch(self._on_model))
        self._open.append(await self._bus.state(DRAIN).watch(self._on_drain))
        self._open.append(await self._bus.state(TRAFFIC).watch(self._on_traffic))
        self._open.append(await self._bus.state(ADAPTER).watch(self._on_adapter))

    async def stop(self) -> None:
        while self._open:
            await self._open.pop().close()

    def recall(self, memberships: Iterable[Membership]) -> None:
        """Know the members of an earlier placement until they are heard themselves, or the grace ends."""
        for membership in memberships:
            self._seen = recall(membership, self._time_s()) | self._seen

    def facts(self) -> Facts:
        """The view now, less those who have been silent for too long."""
        now_s = self._time_s()
        for replica_id in [name for name, seen in self._seen.items() if is_forgotten(seen, now_s, self._policy)]:
            del self._seen[replica_id]
            self._residency.pop(replica_id, None)
        if self._told is None:
            self._told = dict(self._by_key)
        return Facts(
            now_s=now_s,
            real_s=self._real_s(),
            adapters=self._told,
            rank_classes=rank_classes_of(self._models.values()),
            seen=dict(self._seen),
            drained=frozenset(self._drained),
            held={replica_id: view.tiers for replica_id, view in self._residency.items()},
            traffic=dict(self._traffic),
            activity=self._activity,
        )

    def _time_s(self) -> float:
        return self._listening.time_s(self._clock.now_s(), self._ears)

    def _real_s(self) -> float:
        return self._listening.real_s(self._clock.now_s())

    async def _on_report(self, report: ReplicaReport, ids: Ids) -> None:
        self._listening = self._listening.heard(self._clock.now_s(), self._ears)
        before = self._seen.get(report.replica_id)
        after = observe(before, report, self._time_s())
        self._seen[report.replica_id] = after
        if before is None or (before.told, before.pool_id) != (after.told, after.pool_id):
            self.changed = True

    async def _on_residency(self, message: Residency, ids: Ids) -> None:
        view = self._residency.get(message.replica_id, ResidencyView())
        self._residency[message.replica_id] = fold_residency(view, message)

    async def _on_activity(self, message: GatewayActivity, ids: Ids) -> None:
        """Calls for no turn of its own: demand is looked at with the next one, at most a second later."""
        self._activity = demand.fold(self._activity, message, self._real_s(), self._demand_policy)

    async def _on_adapter(self, change: Change[AdapterRecord]) -> None:
        before = self._adapters.get(change.ids)
        if not _follow(self._adapters, change):
            return
        if before is not None:
            del self._by_key[before.key]
        if change.value is not None:
            self._by_key[change.value.key] = change.value
        self.changed, self._told = True, None

    async def _on_model(self, change: Change[BaseModelRecord]) -> None:
        self.changed |= _follow(self._models, change)

    async def _on_traffic(self, change: Change[PoolTraffic]) -> None:
        """Calls for another plan only where nothing was known: what is busier now is for the next refresh."""
        pool_id = change.ids[0]
        if change.value is None:
            self._traffic.pop(pool_id, None)
        else:
            self.changed |= pool_id not in self._traffic
            self._traffic[pool_id] = change.value

    async def _on_drain(self, change: Change[DrainOrder]) -> None:
        replica_id = change.ids[0]
        drained = self._drained - {replica_id} if change.value is None else self._drained | {replica_id}
        self.changed |= drained != self._drained
        self._drained = drained


def _follow(held: dict[Ids, M], change: Change[M]) -> bool:
    """Whether the change says something new; a watch repeats itself after every reconnect."""
    if held.get(change.ids) == change.value:
        return False
    if change.value is None:
        del held[change.ids]
    else:
        held[change.ids] = change.value
    return True
