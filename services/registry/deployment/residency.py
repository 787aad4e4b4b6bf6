"""Brings a version into a slot on its owners before an alias means it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from services.registry.core.deployment.residency import Residency, judge_residency, nobody_ready, not_asked, whom_to_ask
from services.registry.core.records import StoredAdapter
from services.registry.fleet import UNANSWERED, Fleet
from shared.bus.port import NoResponders
from shared.messages.operations import ReplicaSummary
from shared.runtime.clock import Clock

_UNDER_WAY = "it was still loading when the time was up"


class ResidencyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`deadline_s` bounds everything together. Placement is asked again for `owners_wait_s` while it does not answer
    or names no owner, because it has just started or hears of the adapter only now; a replica, `tries` times."""

    deadline_s: float = 20.0
    short_deadline_s: float = 2.0
    owners_wait_s: float = 1.0
    tries: int = 3
    retry_s: float = 0.2


class Residencies:
    def __init__(self, fleet: Fleet, clock: Clock, policy: ResidencyPolicy) -> None:
        self._fleet = fleet
        self._clock = clock
        self.policy = policy

    async def secure(self, adapter: StoredAdapter, *, within_s: float) -> Residency:
        """Ready owners have the adapter in a slot, or why not. Replicas go on loading after the time is up."""
        troubles: dict[str, str | None] = {}
        try:
            async with asyncio.timeout(within_s):
                asked = await self._whom(adapter)
                if isinstance(asked, Residency):
                    return asked
                troubles.update(dict.fromkeys(asked, _UNDER_WAY))
                await asyncio.gather(*(self._bring(replica_id, adapter, troubles) for replica_id in asked))
        except TimeoutError:
            if not troubles:
                return not_asked("it did not answer in time")
        return judge_residency(adapter.adapter_id, troubles)

    async def _whom(self, adapter: StoredAdapter) -> tuple[str, ...] | Residency:
        until_s = self._clock.now_s() + self.policy.owners_wait_s
        while True:
            late = self._clock.now_s() >= until_s
            try:
                replicas = (await self._fleet.view()).replicas
                if not whom_to_ask(adapter.pool_id, replicas, ()):
                    return nobody_ready(adapter.adapter_id, adapter.pool_id)
                owners = await self._owners(adapter, replicas)
                if owners or late:
                    return owners or whom_to_ask(adapter.pool_id, replicas, ())
            except UNANSWERED as error:
                if late:
                    return not_asked(_sentence(error))
            await self._clock.sleep_s(self.policy.retry_s)

    async def _owners(self, adapter: StoredAdapter, replicas: Sequence[ReplicaSummary]) -> tuple[str, ...]:
        """Those that are ready; while another one is not, requests go to these."""
        owners = await self._fleet.owners(adapter)
        return whom_to_ask(adapter.pool_id, replicas, owners) if owners else ()

    async def _bring(self, replica_id: str, adapter: StoredAdapter, troubles: dict[str, str | None]) -> None:
        for _ in range(self.policy.tries):
            try:
                result = await self._fleet.load(replica_id, adapter, "gpu")
            except UNANSWERED as error:
                troubles[replica_id] = _sentence(error)
            else:
                troubles[replica_id] = None if result.ok else result.reason
            if troubles[replica_id] is None:
                return
            await self._clock.sleep_s(self.policy.retry_s)


def _sentence(error: Exception) -> str:
    return "nobody of that name is on the bus" if isinstance(error, NoResponders) else str(error)
