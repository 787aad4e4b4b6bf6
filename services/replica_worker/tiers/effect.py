"""Proof of effect: is what a slot holds after a load what the evaluation measured?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from services.replica_worker.engine.watch import EngineWatch
from services.replica_worker.tiers.errors import AdapterFailed
from shared.messages.desired import AdapterRecord

OnMismatch = Callable[[AdapterRecord, str], Awaitable[None]]
"""Told the record and the fingerprint that was found instead."""


class EffectProof:
    """Fingerprints are only comparable within one engine build and dtype, so they carry both:
    `<build>/<dtype>/<SHA-256>`. One on record that was taken by another build proves nothing here."""

    def __init__(self, watch: EngineWatch, on_mismatch: OnMismatch) -> None:
        self._watch = watch
        self._on_mismatch = on_mismatch

    async def fingerprint(self, slot: int) -> str:
        return self._prefix() + await self._watch.engine.fingerprint(slot)

    async def check(self, record: AdapterRecord, slot: int) -> None:
        """Raises AdapterFailed; the caller clears the slot then."""
        if not record.fingerprint.startswith(self._prefix()):
            return
        found = await self.fingerprint(slot)
        if found != record.fingerprint:
            await self._on_mismatch(record, found)
            raise AdapterFailed(f"{record.adapter_id} has another effect here than the one on record")

    def _prefix(self) -> str:
        info = self._watch.info
        return f"{info.build}/{info.dtype}/"
