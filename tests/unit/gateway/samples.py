"""What registries, placements and workers say, as it comes over the bus: encoded and decoded again."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from shared.contracts import catalog
from shared.contracts.channel import Channel
from shared.contracts.codec import decode, encode
from shared.messages.desired import AliasRecord, ApiKeyRecord, BaseModelRecord, Member, Membership, OwnerCount
from shared.messages.identity import AdapterKey
from shared.messages.pools import pool_id
from shared.messages.reports import ReplicaReport, Residency, ResidencyEntry

M = TypeVar("M", bound=msgspec.Struct)

BASE_HASH = "b" * 64
POOL = pool_id(BASE_HASH, 16)
ADAPTER = AdapterKey(adapter_id="acme-1", digest="a" * 64)


def heard(channel: Channel[M, Any], message: M, **changes: Any) -> M:
    return decode(channel, encode(channel, msgspec.structs.replace(message, **changes)))


def alias(**changes: Any) -> AliasRecord:
    record = AliasRecord(
        alias="acme/support", tenant_id="acme", adapter_id=ADAPTER.adapter_id, digest=ADAPTER.digest, pool_id=POOL,
        base_model_hash=BASE_HASH, base_model_name="tiny-base", updated_at_s=5.0,
    )  # fmt: skip
    return heard(catalog.ALIAS, record, **changes)


def api_key(**changes: Any) -> ApiKeyRecord:
    return heard(catalog.API_KEY, ApiKeyRecord(key_id="k1", tenant_id="acme"), **changes)


def base(**changes: Any) -> BaseModelRecord:
    record = BaseModelRecord(
        base_model_hash=BASE_HASH, name="tiny-base", layers=2, modules={}, rank_classes=(16, 64),
        max_context_tokens=2_048, created_at_s=3.0,
    )  # fmt: skip
    return heard(catalog.BASE_MODEL, record, **changes)


def member(replica_id: str, **changes: Any) -> Member:
    made = Member(
        replica_id=replica_id, incarnation=f"{replica_id}-1", weight=1.0, slots=4, rank_limit=16, ram_budget_bytes=0,
        disk_budget_bytes=0, ready=True,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def membership(*members: Member, **changes: Any) -> Membership:
    return heard(catalog.MEMBERSHIP, Membership(pool_id=POOL, epoch=1, revision=1, members=members), **changes)


def owner_count(**changes: Any) -> OwnerCount:
    return heard(catalog.OWNER_COUNT, OwnerCount(pool_id=POOL), **changes)


def report(replica_id: str, **changes: Any) -> ReplicaReport:
    made = ReplicaReport(
        replica_id=replica_id, incarnation=f"{replica_id}-1", pool_id=POOL, sequence=1, ready=True, draining=False,
        base_model_hash=BASE_HASH, rank_limit=16, engine="timed", engine_build="", slots=4, slots_busy=0, max_rows=8,
        running=0, queue_depth=0, tokens_in_flight=0, tokens_per_s=0.0, evictions_per_min=0.0, loads_per_min=0.0,
        ram_bytes=0, ram_budget_bytes=0, disk_bytes=0, disk_budget_bytes=0,
    )  # fmt: skip
    return heard(catalog.REPLICA_REPORT, made, **changes)


def residency(replica_id: str, tier: str, **changes: Any) -> Residency:
    entry = ResidencyEntry(adapter_id=ADAPTER.adapter_id, digest=ADAPTER.digest, tier=tier)
    made = Residency(
        replica_id=replica_id, incarnation=f"{replica_id}-1", pool_id=POOL, sequence=1, snapshot=True, entries=(entry,)
    )
    return heard(catalog.REPLICA_RESIDENCY, made, **changes)
