"""The actuator of an embedded fleet: replicas are processes of the local supervisor, asked over its socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.io.actuator import ActuatorFailed
from shared.supervision import AskReplicas, ReplicasTold

_DEADLINE_S = 5.0


class Supervised:
    """A pool that is none of the supervisor's is left alone: it may be somebody else's on the same bus."""

    def __init__(self, supervisor: Path, *, starts_merged: bool) -> None:
        self.starts_merged = starts_merged
        self._supervisor = supervisor

    async def existing(self, pool: PoolSpec) -> frozenset[str] | None:
        told = await self._ask(_about(pool))
        return frozenset(told.replica_ids) if told.known else None

    def removal_order(self, pool: PoolSpec, existing: frozenset[str]) -> tuple[str, ...] | None:
        return None

    async def apply(self, order: ScaleOrder) -> None:
        about, epoch = _about(order.pool), order.epoch
        await self._ask(msgspec.structs.replace(about, desired=order.desired, remove=order.remove, epoch=epoch))

    async def _ask(self, ask: AskReplicas) -> ReplicasTold:
        try:
            async with asyncio.timeout(_DEADLINE_S):
                told = await self._say(msgspec.json.encode(ask))
        except (OSError, TimeoutError, msgspec.MsgspecError) as error:
            raise ActuatorFailed(f"the supervisor does not answer on {self._supervisor}: {error!r}") from error
        if told.error:
            raise ActuatorFailed(told.error)
        return told

    async def _say(self, line: bytes) -> ReplicasTold:
        reader, writer = await asyncio.open_unix_connection(self._supervisor)
        try:
            writer.write(line + b"\n")
            await writer.drain()
            return msgspec.json.decode(await reader.readline(), type=ReplicasTold)
        finally:
            writer.close()


def _about(pool: PoolSpec) -> AskReplicas:
    merged = pool.merged
    if merged is None:
        return AskReplicas(pool_id=pool.pool_id)
    return AskReplicas(pool_id=pool.pool_id, merged_id=merged.adapter_id, merged_digest=merged.digest)
