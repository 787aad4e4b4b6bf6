"""Those whom placement and the autoscaler listen to, without a model: they say what real ones would say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from shared.bus.port import Bus, Change
from shared.contracts.catalog import ASSIGNMENT, GATEWAY_ACTIVITY, REPLICA_REPORT, REPLICA_RESIDENCY
from shared.contracts.codec import decode, encode
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from shared.messages.desired import AdapterRecord, AssignmentShard, BaseModelRecord, ModuleShape
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from shared.messages.reports import ReplicaReport, Residency, ResidencyEntry

BASE_HASH = key_of("the base model of these tests")
POOL = pool_id(BASE_HASH, 16)
MIB = 1 << 20


def base_model(rank_classes: tuple[int, ...] = (16,)) -> BaseModelRecord:
    return BaseModelRecord(
        base_model_hash=BASE_HASH,
        name="tiny",
        layers=2,
        modules={"q_proj": ModuleShape(in_features=64, out_features=64)},
        rank_classes=rank_classes,
        max_context_tokens=2048,
    )


def adapter(adapter_id: str, *, status: str = "active", rank: int = 16, size_bytes: int = MIB) -> AdapterRecord:
    return AdapterRecord(
        adapter_id=adapter_id,
        digest=key_of(adapter_id),
        tenant_id="acme",
        version="1",
        pool_id=POOL,
        base_model_hash=BASE_HASH,
        rank=rank,
        alpha=32.0,
        target_modules=("q_proj",),
        size_bytes=size_bytes,
        store_key=f"adapters/{key_of(adapter_id)}.safetensors",
        status=status,
    )


def report(replica_id: str, sequence: int = 1, **changes: Any) -> ReplicaReport:
    """As a reader gets it: through the channel's own encode and decode."""
    plain = ReplicaReport(
        replica_id=replica_id,
        incarnation="first",
        pool_id=POOL,
        sequence=sequence,
        ready=True,
        draining=False,
        base_model_hash=BASE_HASH,
        rank_limit=16,
        engine="timed",
        engine_build="tests",
        slots=4,
        slots_busy=0,
        max_rows=32,
        running=0,
        queue_depth=0,
        tokens_in_flight=0,
        tokens_per_s=0.0,
        evictions_per_min=0.0,
        loads_per_min=0.0,
        ram_bytes=0,
        ram_budget_bytes=1024 * MIB,
        disk_bytes=0,
        disk_budget_bytes=4096 * MIB,
    )
    return decode(REPLICA_REPORT, encode(REPLICA_REPORT, msgspec.structs.replace(plain, **changes)))


class Gateway:
    """Says each second what customers asked for, in answers of `ANSWER_TOKENS`; fractions of a request wait for the
    next second."""

    ANSWER_TOKENS = 250

    def __init__(self, bus: Bus, gateway_id: str) -> None:
        self.gateway_id = gateway_id
        self._bus = bus
        self._sequence = 0
        self._owed: dict[str, float] = {}

    async def tell(self, tokens_per_s: Mapping[str, float], passed_on: float = 1.0) -> None:
        """`passed_on` is the share that the fleet could serve: all of it is asked for, and all of it is passed on
        unless the fleet is full."""
        adapters = {name: self._one(name, rate, passed_on) for name, rate in tokens_per_s.items() if rate > 0}
        self._sequence += 1
        said = GatewayActivity(
            gateway_id=self.gateway_id,
            sequence=self._sequence,
            interval_s=1.0,
            pools={
                POOL: PoolActivity(
                    requests=sum(each.requests for each in adapters.values()),
                    tokens=sum(each.tokens for each in adapters.values()),
                    adapters=adapters,
                )
            },
        )
        await self._bus.publish(GATEWAY_ACTIVITY, said, self.gateway_id)

    def _one(self, name: str, tokens_per_s: float, passed_on: float) -> AdapterActivity:
        owed = self._owed.get(name, 0.0) + tokens_per_s / self.ANSWER_TOKENS
        self._owed[name] = owed - int(owed)
        return AdapterActivity(
            requests=int(owed), finished=int(owed * passed_on), tokens=round(tokens_per_s * passed_on)
        )  # fmt: skip


class Replica:
    """Reports when told to, follows its assignment, and says that it holds what it should hold."""

    def __init__(self, bus: Bus, replica_id: str, **capacities: Any) -> None:
        self.replica_id = replica_id
        self.shards: dict[str, AssignmentShard] = {}
        self._bus = bus
        self._capacities = capacities
        self._incarnation = "first"
        self._sequence = 0
        self._residency_sequence = 0
        self._held: dict[str, str] | None = None
        self._told = asyncio.Event()

    async def start(self) -> None:
        await self._bus.state(ASSIGNMENT).watch(self._on_shard, self.replica_id)

    async def report(self, **changes: Any) -> ReplicaReport:
        self._sequence += 1
        said = report(
            self.replica_id, self._sequence, **{"incarnation": self._incarnation, **self._capacities, **changes}
        )
        await self._bus.publish(REPLICA_REPORT, said, self.replica_id)
        return said

    async def repeat(self, said: ReplicaReport) -> None:
        """As the bus may: a message twice, or late."""
        await self._bus.publish(REPLICA_REPORT, said, self.replica_id)

    async def tell_residency(self) -> None:
        self._residency_sequence += 1
        await self._bus.publish(
            REPLICA_RESIDENCY,
            Residency(
                replica_id=self.replica_id,
                incarnation=self._incarnation,
                pool_id=POOL,
                sequence=self._residency_sequence,
                snapshot=True,
                entries=tuple(
                    ResidencyEntry(adapter_id=adapter_id, digest=key_of(adapter_id), tier=tier)
                    for adapter_id, tier in (self.tiers if self._held is None else self._held).items()
                ),
            ),
            self.replica_id,
        )

    def restart(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._sequence = 0
        self._residency_sequence = 0

    def hold(self, tiers: dict[str, str]) -> None:
        """From now on it holds this, whatever it should hold."""
        self._held = tiers

    @property
    def tiers(self) -> dict[str, str]:
        """What it was last told to hold."""
        return {
            adapter.adapter_id: adapter.tier
            for shard in self.shards.values()
            if shard.shard < shard.shards
            for adapter in shard.adapters
        }

    async def until(self, tiers: dict[str, str]) -> None:
        """Returns once it is told to hold exactly this; put a deadline around it."""
        while self.tiers != tiers:
            self._told.clear()
            await self._told.wait()

    async def _on_shard(self, change: Change[AssignmentShard]) -> None:
        if change.value is None:
            self.shards.pop(change.ids[1], None)
        else:
            self.shards[change.ids[1]] = change.value
        self._told.set()
