"""What operators and placement want of a replica, over the bus."""

from __future__ import annotations

from shared.contracts.catalog import ASSIGNMENT, LOAD, UNLOAD
from shared.messages.desired import AdapterRecord, AssignedAdapter, AssignmentShard
from shared.messages.operations import HoldResult, LoadAdapter, UnloadAdapter
from tests.support.replica import REPLICA_ID, Rig


async def load(replica: Rig, record: AdapterRecord, tier: str = "gpu") -> HoldResult:
    ask = LoadAdapter(adapter_id=record.adapter_id, digest=record.digest, tier=tier)
    return await replica.registry.ask(LOAD, ask, REPLICA_ID, timeout_s=20)


async def unload(replica: Rig, record: AdapterRecord) -> HoldResult:
    ask = UnloadAdapter(adapter_id=record.adapter_id, digest=record.digest)
    return await replica.registry.ask(UNLOAD, ask, REPLICA_ID, timeout_s=20)


async def assign(replica: Rig, *wanted: tuple[AdapterRecord, str], epoch: int = 1) -> None:
    adapters = tuple(
        AssignedAdapter(adapter_id=record.adapter_id, digest=record.digest, role="owner", tier=tier)
        for record, tier in wanted
    )
    shard = AssignmentShard(replica_id=REPLICA_ID, pool_id="p", epoch=epoch, shard=0, shards=1, adapters=adapters)
    await replica.placement.state(ASSIGNMENT).put(shard, REPLICA_ID, "0")


def tier(replica: Rig, record: AdapterRecord) -> str:
    return replica.replica.loader.tier_of(record.key)
