"""The autoscaler in the twin: it hears, `decide_all` decides, and replicas come and go in their time."""

from __future__ import annotations

import msgspec

from loadtest.twin.agenda import Agenda
from loadtest.twin.book import Book
from loadtest.twin.fleet import ReplicaFleet
from loadtest.twin.scenario import PoolShape, Scaling
from loadtest.twin.store import Store
from services.autoscaler.core.demand import DemandPolicy, Tally, heard, of_pool
from services.autoscaler.core.fleet import decide_all, merged_loads
from services.autoscaler.core.fold import Facts, HeardReplica, loads, newer
from services.autoscaler.core.load import PoolLoad
from services.autoscaler.core.memory import PoolDecision, PoolMemory
from services.autoscaler.core.merged import Market, MergedPool, customers_after, merged_pools
from shared.messages.activity import GatewayActivity
from shared.messages.desired import Membership, PoolPressure
from shared.messages.reports import ReplicaReport

TURN_S = 1.0
FILL_S = 1.5
_DAY_S = 86_400.0


class Autoscaling:
    """`pools` are those that it may scale, by their ids; merged ones come and go as customers need them."""

    def __init__(self, scaling: Scaling, agenda: Agenda, fleet: ReplicaFleet, store: Store, book: Book) -> None:
        self.wishes: dict[str, int] = {}
        self.reasons: list[tuple[float, str]] = []
        self._scaling = scaling
        self._agenda = agenda
        self._fleet = fleet
        self._store = store
        self._book = book
        self._pools: dict[str, PoolShape] = {fleet.pool_id(pool): pool for pool in scaling.pools}
        self._heard: dict[str, HeardReplica] = {}
        self._memories: dict[str, PoolMemory] = {}
        self._weights: dict[str, float] = {}
        self._pressures: dict[str, PoolPressure] = {}
        self._tallies: dict[str, Tally] = {}
        self._customers: dict[tuple[str, str], Tally] = {}
        self._merged: dict[str, MergedPool] = {}
        self._windows = DemandPolicy()
        self._next: dict[str, int] = {name: pool.replicas for name, pool in self._pools.items()}

    def start(self) -> None:
        self._agenda.every(TURN_S, self.turn, FILL_S)

    def on_report(self, report: ReplicaReport) -> None:
        self._heard[report.replica_id] = newer(self._heard.get(report.replica_id), report, self._agenda.now_s)

    def on_membership(self, membership: Membership) -> None:
        self._weights |= {member.replica_id: member.weight for member in membership.members}

    def on_pressure(self, pressure: PoolPressure) -> None:
        self._pressures[pressure.pool_id] = pressure

    def on_activity(self, message: GatewayActivity) -> None:
        now_s = self._agenda.now_s
        for pool_id, said in message.pools.items():
            before = self._tallies.get(pool_id)
            self._tallies[pool_id] = heard(before, of_pool(said), message.interval_s, now_s, self._windows)
        if self._scaling.merged.enabled:
            self._customers = customers_after(self._customers, message, now_s, self._windows)

    def turn(self) -> None:
        now_s = self._agenda.now_s
        scaling = self._scaling
        decisions = decide_all(self._memories, self._loads(), now_s, scaling.policy, scaling.cost)
        self._memories |= {pool_id: decision.memory for pool_id, decision in decisions.items()}
        for pool_id, decision in decisions.items():
            if self.wishes.get(pool_id) != decision.desired:
                self.wishes[pool_id] = decision.desired
                self.reasons.append((now_s, f"{pool_id} should have {decision.desired}: {decision.reason}"))
            self._carry_out(pool_id, decision)
        self._drain({name for memory in self._memories.values() for name in memory.drains})

    def _loads(self) -> dict[str, PoolLoad]:
        now_s = self._agenda.now_s
        forgotten_s = now_s - 2 * self._scaling.policy.silence.deaf_after_s
        self._heard = {name: found for name, found in self._heard.items() if found.at_s >= forgotten_s}
        facts = Facts(
            replicas=self._heard, weights=self._weights, pressures=self._pressures, tallies=self._tallies,
        )  # fmt: skip
        pools = {
            pool_id: load for pool_id, load in loads(facts, now_s, self._windows).items() if pool_id in self._pools
        }
        if self._scaling.merged.enabled:
            pools = self._with_merged(pools)
        for pool_id in self._memories.keys() - pools.keys():
            pools[pool_id] = PoolLoad(pool_id=pool_id)
        day_s = now_s % _DAY_S
        return {
            pool_id: msgspec.structs.replace(load, existing=self._fleet.existing(pool_id), day_s=day_s)
            for pool_id, load in pools.items()
        }

    def _with_merged(self, pools: dict[str, PoolLoad]) -> dict[str, PoolLoad]:
        rates = {pool_id: self._memories[pool_id].pace.rate for pool_id in pools if pool_id in self._memories}
        records = {name: self._book.known(name) for _, name in self._customers}
        market = Market(customers=self._customers, rates=rates, records=records)
        self._merged = merged_pools(
            self._merged, market, self._agenda.now_s, self._scaling.merged, self._windows
        )  # fmt: skip
        for pool_id, merged in self._merged.items():
            if pool_id not in self._pools and merged.wanted and merged.key is not None:
                customer = self._book.number_of(merged.key.adapter_id)
                shape = msgspec.structs.replace(self._pools[merged.base_pool_id], merged=customer, odd=())
                self._pools[pool_id] = shape
                self._next[pool_id] = 0
        return merged_loads(pools, self._merged, rates)

    def _carry_out(self, pool_id: str, decision: PoolDecision) -> None:
        for name in decision.remove:
            self._fleet.remove(name)
        for _ in range(decision.exist - len(self._fleet.existing(pool_id))):
            number = self._next[pool_id]
            self._next[pool_id] = number + 1
            self._fleet.order(self._pools[pool_id], number, self._scaling.start_s)

    def _drain(self, due: set[str]) -> None:
        """Orders that are missing, and those that are over, reach replicas and placement."""
        for name in due ^ self._store.drained:
            self._fleet.drain(name, name in due)
        self._store.drained = due
