"""A fleet in virtual time around a real placement, and what must be true of it after every second."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from services.placement.app import PlacementPolicy
from services.placement.core.needs import NeedPolicy
from services.placement.core.owners import ChurnPolicy
from services.placement.core.tick import TickPolicy
from shared.bus.memory import MemoryBroker
from shared.contracts.catalog import ADAPTER, ASSIGNMENT, BASE_MODEL, MEMBERSHIP, OWNER_COUNT, PRESSURE
from shared.contracts.codec import decode
from shared.hashing import rank
from shared.messages.desired import AdapterRecord, AssignmentShard, Membership, OwnerCount, PoolPressure
from shared.messages.identity import key_of
from shared.messages.reports import ReplicaReport
from shared.runtime.clock import ManualClock
from tests.simulation.placing import placement_on
from tests.simulation.speakers import BASE_HASH, Gateway, Replica, base_model

OWNERS = 2
LOST_AFTER_S = 5.0
MOVES = ChurnPolicy().moves
POLICY = PlacementPolicy(tick=TickPolicy(need=NeedPolicy(target_share=0.7, hold_s=60.0)))
"""So large a share that owners are few, in fleets as small as these."""
LATE_AT_MOST_S = 10.0
"""A new holder's turn has come by then, in the fleets of these tests."""


class World:
    """Replicas report once a second. `alive` ones speak; `ready_s` says when each last said it was ready."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.broker = MemoryBroker()
        self.clock = ManualClock()
        self.placement = placement_on(self.broker.connect("placement"), self.clock, POLICY)
        self.alive: dict[str, Replica] = {}
        self.adapters: dict[str, AdapterRecord] = {}
        self.ready_s: dict[str, float] = {}
        self.capacities: dict[str, dict[str, int]] = {}
        self.moved = 0
        self.may_be_late = False
        """Whether a new holder may have to wait for its turn."""
        self._registry = self.broker.connect("registry")
        self._last_said: ReplicaReport | None = None
        self._revision = 0
        self.asked_tokens_per_s: dict[str, float] = {}
        """What customers ask for, by adapter."""
        self.said: dict[str, dict[str, Any]] = {}
        """What replicas say besides the usual."""
        self._gateway = Gateway(self.broker.connect("gateway"), "g1")
        self._owned: set[tuple[str, str]] = set()
        self._late_since_s: dict[str, float] = {}

    async def start(self) -> None:
        await self._registry.state(BASE_MODEL).put(base_model(), BASE_HASH)
        await self.placement.start()

    async def put(self, records: Iterable[AdapterRecord]) -> None:
        for record in records:
            self.adapters[record.adapter_id] = record
            await self._registry.state(ADAPTER).put(record, key_of(record.adapter_id))

    async def join(self, replica_id: str, **capacities: int) -> None:
        self.capacities[replica_id] = capacities
        self.alive[replica_id] = Replica(self.broker.connect("replica_worker"), replica_id, **capacities)

    def kill(self, replica_id: str) -> Replica:
        return self.alive.pop(replica_id)

    async def seconds(self, count: int, lost: float = 0.0, repeated: float = 0.0) -> None:
        """Every alive replica reports each second, except that a report is lost or comes twice now and then."""
        for _ in range(count):
            for replica_id, replica in self.alive.items():
                if self.draw.random() < lost:
                    continue
                self._last_said = await replica.report(**self.said.get(replica_id, {}))
                self.ready_s[replica_id] = self.clock.now_s()
                if self.draw.random() < repeated:
                    await replica.repeat(self._last_said)
            await self._gateway.tell(self.asked_tokens_per_s)
            for _ in range(10):
                await self.clock.advance(0.1)
                await self.placement.turn()
            self.check(sample=100)

    async def deaf_seconds(self, count: int) -> None:
        """Only the gateway is heard."""
        for _ in range(count):
            await self._gateway.tell(self.asked_tokens_per_s)
            for _ in range(10):
                await self.clock.advance(0.1)
                await self.placement.turn()

    # What the bus holds.

    def membership(self) -> Membership:
        (stored,) = self.broker.buckets[MEMBERSHIP.name].stored.values()
        assert stored.payload is not None
        return decode(MEMBERSHIP, stored.payload)

    def owner_count(self) -> OwnerCount:
        (stored,) = self.broker.buckets[OWNER_COUNT.name].stored.values()
        assert stored.payload is not None
        return decode(OWNER_COUNT, stored.payload)

    def pressure(self) -> PoolPressure | None:
        for stored in self.broker.buckets[PRESSURE.name].stored.values():
            if stored.payload is not None:
                return decode(PRESSURE, stored.payload)
        return None

    def assigned(self) -> dict[str, dict[str, str]]:
        """Tier by adapter by replica, as written."""
        held: dict[str, dict[str, str]] = {}
        for (replica_id, _), stored in self.broker.buckets[ASSIGNMENT.name].stored.items():
            if stored.payload is not None:
                shard: AssignmentShard = decode(ASSIGNMENT, stored.payload)
                held.setdefault(replica_id, {}).update({a.adapter_id: a.tier for a in shard.adapters})
        return held

    # What must be true.

    def check(self, sample: int | None = None) -> None:
        membership, assigned = self.membership(), self.assigned()
        self._check_members(membership)
        self._check_owners(membership, assigned, sample)
        for replica_id, held in assigned.items():
            self._check_budgets(replica_id, held)
        owned = {(adapter_id, replica_id) for replica_id, held in assigned.items() for adapter_id in held}
        self.moved, self._owned = len(owned - self._owned), owned

    def _check_members(self, membership: Membership) -> None:
        now_s = self.clock.now_s()
        assert membership.revision >= self._revision
        self._revision = membership.revision
        for member in membership.members:
            silent_s = now_s - self.ready_s[member.replica_id]
            if member.ready:
                assert silent_s <= LOST_AFTER_S + 1.1, f"{member.replica_id} is routed to, silent for {silent_s:.1f} s"
            else:
                assert silent_s > LOST_AFTER_S, f"{member.replica_id} is not routed to, heard {silent_s:.1f} s ago"
        assert set(self.alive) <= {member.replica_id for member in membership.members}

    def _check_owners(self, membership: Membership, assigned: dict[str, dict[str, str]], sample: int | None) -> None:
        """Whoever ranks by the published weights finds exactly those who were told to hold the adapter, or will
        soon; until then as many others hold it."""
        weights = {member.replica_id: member.weight for member in membership.members}
        limits = {member.replica_id: member.rank_limit for member in membership.members}
        exceptions = self.owner_count().exceptions
        records = list(self.adapters.values())
        for record in records if sample is None else self.draw.sample(records, min(sample, len(records))):
            holders = {replica_id for replica_id, held in assigned.items() if record.adapter_id in held}
            usable = [name for name in rank(record.adapter_id, weights) if limits[name] >= record.rank]
            wanted = exceptions.get(record.adapter_id, OWNERS)
            expected = set(usable[:wanted]) if record.status == "active" else set()
            said = f"{record.adapter_id} is held by {holders}, owned by {expected}"
            if holders == expected:
                self._late_since_s.pop(record.adapter_id, None)
                continue
            assert self.may_be_late, said
            late_s = self.clock.now_s() - self._late_since_s.setdefault(record.adapter_id, self.clock.now_s())
            assert late_s <= LATE_AT_MOST_S, f"{said} for {late_s:.0f} s"
            assert len(holders) == len(expected), said

    def _check_budgets(self, replica_id: str, held: dict[str, str]) -> None:
        capacities: dict[str, Any] = {"slots": 4, **self.capacities[replica_id]}
        size_bytes = {adapter_id: self.adapters[adapter_id].size_bytes for adapter_id in held}
        in_ram = sum(size_bytes[adapter_id] for adapter_id, tier in held.items() if tier != "disk")
        assert sum(tier == "gpu" for tier in held.values()) <= capacities["slots"]
        assert in_ram <= capacities.get("ram_budget_bytes", 1 << 30)
        assert sum(size_bytes.values()) <= capacities.get("disk_budget_bytes", 4 << 30)
