"""From RAM into a slot: one copy at a time, and of the right adapter."""

from __future__ import annotations

import asyncio

from services.replica_worker.engine.port import AdapterUnusable, HostAdapter
from services.replica_worker.tiers.errors import AdapterFailed, EffectWrong
from services.replica_worker.tiers.ground import Ground
from services.replica_worker.tiers.ram import RamTier
from shared.messages.desired import AdapterRecord
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Copying:
    """`mismatches`: loads that were not, or did not do, what they should; those that a second try healed included."""

    def __init__(self, ground: Ground, ram: RamTier) -> None:
        self.mismatches = 0
        self._engine = ground.engine
        self._on_outcome = ground.on_outcome
        self._ram = ram
        self._turn = asyncio.Lock()

    async def copy(self, record: AdapterRecord, slot: int) -> None:
        """Raises AdapterUnavailable, AdapterFailed, EngineFailed; the caller clears the slot then."""
        host = await self._host(record)
        async with self._turn:
            with self._ram.pinned(record.key):
                try:
                    await self._engine.load(slot, host)
                except AdapterUnusable as error:
                    reason = f"the engine cannot apply {record.adapter_id}: {error}"
                    raise AdapterFailed(reason, elsewhere=False) from error

    async def copy_anew(self, record: AdapterRecord, slot: int) -> None:
        """From the file, and over nothing: the copy in RAM may be what is wrong."""
        await self._engine.clear(slot)
        self._ram.discard(record.key)
        await self.copy(record, slot)

    def doubt(self, record: AdapterRecord, error: Exception) -> None:
        """The first try went wrong."""
        self.mismatches += isinstance(error, EffectWrong)
        self._on_outcome("tried again")
        _log.warning("a load is tried again", adapter_id=record.adapter_id, reason=str(error))

    def give_up(self, record: AdapterRecord) -> None:
        """The second one did, too."""
        self._on_outcome("refused")
        self._ram.discard(record.key)

    async def _host(self, record: AdapterRecord) -> HostAdapter:
        """Its copy in RAM; one that is another adapter's is read anew, once."""
        host = await self._ram.hold(record)
        if (wrong := _another(host, record)) is not None:
            self.doubt(record, wrong)
            self._ram.discard(record.key)
            host = await self._ram.hold(record)
        if (wrong := _another(host, record)) is not None:
            self.give_up(record)
            raise wrong
        return host


def _another(host: HostAdapter, record: AdapterRecord) -> EffectWrong | None:
    """Two adapters can do the same on the probe, and still not be the same."""
    if host.spec.digest == record.digest:
        return None
    return EffectWrong(
        f"the copy of {record.adapter_id} in RAM is another adapter's",
        expected=f"digest {record.digest}",
        found=f"digest {host.spec.digest}",
    )
