"""References on slots, and those who wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from services.replica_worker.tiers.proof import SlotProof
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey


class SlotReference:
    """As long as it is not released, its slot holds its adapter, or what was loaded for it: `proof` says whether
    that is the same. Nothing of the slot may leave the replica before."""

    def __init__(self, key: AdapterKey, slot: int, proof: SlotProof, release: Callable[[], None]) -> None:
        self.key = key
        self.slot = slot
        self.proof = proof
        self._release: Callable[[], None] | None = release

    async def proven(self) -> SlotReference:
        """Itself, once its slot is. Raises AdapterFailed, AdapterUnavailable, EngineFailed; it is released then."""
        try:
            await self.proof.settled()
        except BaseException:
            self.release()
            raise
        return self

    def release(self) -> None:
        """Idempotent: a request ends in more than one way, its reference only once."""
        release, self._release = self._release, None
        if release is not None:
            release()


class Grant(NamedTuple):
    """A reference on a slot, and the load that it depends on, if one was under way when it was taken."""

    slot: int
    proof: SlotProof
    load: asyncio.Task[None] | None

    @property
    def void(self) -> bool:
        """The load or its proof failed, and took every reference with it."""
        load = self.load
        failed = load is not None and load.done() and (load.cancelled() or load.exception() is not None)
        return failed or self.proof.failed


class Waiter(NamedTuple):
    record: AdapterRecord
    granted: asyncio.Future[Grant]
    since_s: float
