"""What a registry and a placement would have said of a fleet, said at once: who may call what, and where it lies."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from shared.bus.port import Bus
from shared.contracts.catalog import ADAPTER, ALIAS, API_KEY, ASSIGNMENT, BASE_MODEL, MEMBERSHIP, OWNER_COUNT, TENANT
from shared.messages.desired import (
    AdapterRecord,
    AliasRecord,
    ApiKeyRecord,
    AssignedAdapter,
    AssignmentShard,
    BaseModelRecord,
    Limits,
    Member,
    Membership,
    OwnerCount,
    TenantRecord,
)
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from shared.store.port import weights_key

RANK = 16
_AT_ONCE = 64
_PLENTY = Limits(requests_per_min=100_000_000, tokens_per_min=100_000_000_000, streams=1_000_000)
"""Limits that are looked at with every request, and never reached."""


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """A base and `customers` adapters of one tenant, each with an alias of its own and a file of `adapter_bytes`."""

    base_model_hash: str
    key: str
    customers: int
    adapter_bytes: int
    tenant_id: str = "bench"
    max_context_tokens: int = 4_096

    @property
    def pool_id(self) -> str:
        return pool_id(self.base_model_hash, RANK)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The most popular first."""
        return tuple(f"{self.tenant_id}/voice-{at}:prod" for at in range(self.customers))

    def content(self, at: int) -> bytes:
        """Of an adapter's file: no two are alike."""
        return b"%d" % at + b"." * (self.adapter_bytes - len(b"%d" % at))

    def adapters(self) -> list[AdapterRecord]:
        return [self._adapter(at) for at in range(self.customers)]

    def _adapter(self, at: int) -> AdapterRecord:
        digest = hashlib.sha256(self.content(at)).hexdigest()
        return AdapterRecord(
            adapter_id=f"voice-{at}", digest=digest, tenant_id=self.tenant_id, version="1", pool_id=self.pool_id,
            base_model_hash=self.base_model_hash, rank=RANK, alpha=16.0, target_modules=("q_proj",),
            size_bytes=self.adapter_bytes, store_key=weights_key(digest), status="active",
        )  # fmt: skip


def write_weights(cast: Cast, store: Path) -> None:
    """Every adapter's file, where a store in this folder has it."""
    for at, adapter in enumerate(cast.adapters()):
        path = store / adapter.store_key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cast.content(at))


async def write_directory(registry: Bus, cast: Cast) -> None:
    """As a registry: everything that gateways, placement and replicas know of customers."""
    base = BaseModelRecord(
        base_model_hash=cast.base_model_hash, name="base", layers=2, modules={}, rank_classes=(RANK,),
        max_context_tokens=cast.max_context_tokens,
    )  # fmt: skip
    await registry.state(BASE_MODEL).put(base, cast.base_model_hash)
    await registry.state(TENANT).put(TenantRecord(tenant_id=cast.tenant_id, limits=_PLENTY), cast.tenant_id)
    key = ApiKeyRecord(key_id="bench-1", tenant_id=cast.tenant_id, may_call_base=True, limits=_PLENTY)
    await registry.state(API_KEY).put(key, key_of(cast.key))
    adapters, aliases = registry.state(ADAPTER), registry.state(ALIAS)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def put(alias: str, adapter: AdapterRecord) -> None:
        async with gate:
            await adapters.put(adapter, key_of(adapter.adapter_id))
            await aliases.put(_alias(alias, adapter), key_of(alias))

    await asyncio.gather(*(put(*each) for each in zip(cast.aliases, cast.adapters(), strict=True)))


async def write_placement(placement: Bus, cast: Cast, replica_ids: Sequence[str]) -> None:
    """As a placement that wants every adapter in a slot of every replica."""
    membership = Membership(pool_id=cast.pool_id, epoch=1, revision=1, members=tuple(_members(replica_ids)))
    await placement.state(MEMBERSHIP).put(membership, cast.pool_id)
    owners = OwnerCount(pool_id=cast.pool_id, owners=len(replica_ids), epoch=1)
    await placement.state(OWNER_COUNT).put(owners, cast.pool_id)
    wanted = tuple(
        AssignedAdapter(adapter_id=each.adapter_id, digest=each.digest, role="owner", tier="gpu")
        for each in cast.adapters()
    )
    for name in replica_ids:
        shard = AssignmentShard(replica_id=name, pool_id=cast.pool_id, epoch=1, shard=0, shards=1, adapters=wanted)
        await placement.state(ASSIGNMENT).put(shard, name, "0")


def _alias(alias: str, adapter: AdapterRecord) -> AliasRecord:
    return AliasRecord(
        alias=alias, tenant_id=adapter.tenant_id, adapter_id=adapter.adapter_id, digest=adapter.digest,
        pool_id=adapter.pool_id, base_model_hash=adapter.base_model_hash, base_model_name="base",
    )  # fmt: skip


def _members(replica_ids: Sequence[str]) -> Iterable[Member]:
    for name in replica_ids:
        yield Member(
            replica_id=name, incarnation=f"{name}-1", weight=1.0, slots=250, rank_limit=RANK,
            ram_budget_bytes=1 << 30, disk_budget_bytes=8 << 30, ready=True,
        )  # fmt: skip
