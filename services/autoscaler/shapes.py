"""The shape of the day outlives whoever learnt it: it is kept on the bus, and taken up by the next leader."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.autoscaler.core.floor import kept, recalled
from services.autoscaler.core.memory import PoolMemory
from services.autoscaler.core.policy import FloorPolicy
from services.autoscaler.io.desk import Desk
from shared.runtime.clock import Clock

KEEP_S = 60.0
"""How often it is written: a minute of a slot of fifteen is all that can be lost."""


class ShapeKeeper:
    """Does nothing where no floor is wanted. Every coroutine raises what the desk's do; calling again is safe."""

    def __init__(self, clock: Clock, policy: FloorPolicy, desk: Desk) -> None:
        self._clock = clock
        self._policy = policy
        self._desk = desk
        self._due_at_s = 0.0

    async def recall(self, memories: Mapping[str, PoolMemory]) -> dict[str, PoolMemory]:
        """The memories with the shapes on record."""
        if not self._policy.enabled:
            return dict(memories)
        said, wall_s = await self._desk.shapes(), self._clock.wall_s()
        return {
            pool_id: msgspec.structs.replace(memory, shape=recalled(said.get(pool_id), wall_s, self._policy))
            for pool_id, memory in memories.items()
        }

    async def keep(self, memories: Mapping[str, PoolMemory], epoch: int) -> None:
        now_s = self._clock.now_s()
        if not self._policy.enabled or now_s < self._due_at_s:
            return
        for pool_id, memory in memories.items():
            shape = kept(pool_id, memory.shape, self._clock.wall_s(), self._policy)
            if shape is not None:
                await self._desk.keep_shape(shape, epoch)
        self._due_at_s = now_s + KEEP_S

    async def forget(self, pool_id: str, epoch: int) -> None:
        if self._policy.enabled:
            await self._desk.end_shape(pool_id, epoch)
