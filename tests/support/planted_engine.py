"""The reference engine with wrong weights on order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from services.replica_worker.engine.port import BASE_SLOT, EngineRequest, HostAdapter, Probe
from services.replica_worker.engine.torch.engine import TorchEngine


class PlantedEngine(TorchEngine):
    """The next `times` loads put `instead` into the slot, under the name and digest of what was asked for. With
    `slots_off_by` every row is computed with the slot so many places on, if that one is filled."""

    instead: HostAdapter | None = None
    times = 0
    slots_off_by = 0

    def plant(self, instead: HostAdapter, times: int) -> None:
        self.instead, self.times = instead, times

    async def load(self, slot: int, adapter: HostAdapter) -> None:
        if self.times and self.instead is not None:
            self.times -= 1
            adapter = msgspec.structs.replace(self.instead, spec=adapter.spec)  # type: ignore[type-var]
        await super().load(slot, adapter)

    def submit(self, request: EngineRequest) -> None:
        super().submit(msgspec.structs.replace(request, slot=self._shifted(request.slot)))

    def probe(self, prompt_token_ids: Sequence[int], slot: int, top: int = 20) -> asyncio.Future[Probe]:
        return super().probe(prompt_token_ids, self._shifted(slot), top)

    def _shifted(self, slot: int) -> int:
        if slot == BASE_SLOT or not self.slots_off_by:
            return slot
        return (slot + self.slots_off_by) % self._started().info.slots
