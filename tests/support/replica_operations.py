"""What an operator asks of a replica, over the bus."""

from __future__ import annotations

from shared.contracts.catalog import LOAD, UNLOAD
from shared.messages.desired import AdapterRecord
from shared.messages.operations import HoldResult, LoadAdapter, UnloadAdapter
from tests.support.replica import REPLICA_ID, Rig


async def load(replica: Rig, record: AdapterRecord, tier: str = "gpu") -> HoldResult:
    ask = LoadAdapter(adapter_id=record.adapter_id, digest=record.digest, tier=tier)
    return await replica.registry.ask(LOAD, ask, REPLICA_ID, timeout_s=20)


async def unload(replica: Rig, record: AdapterRecord) -> HoldResult:
    ask = UnloadAdapter(adapter_id=record.adapter_id, digest=record.digest)
    return await replica.registry.ask(UNLOAD, ask, REPLICA_ID, timeout_s=20)
