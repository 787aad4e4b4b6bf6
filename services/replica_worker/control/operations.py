"""What operators ask of one replica."""

from __future__ import annotations

import asyncio

from services.replica_worker.core.keeping import KEPT_S
from services.replica_worker.means import Means
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from services.replica_worker.tiers.loader import OPERATION_DEADLINE_S
from shared.messages.identity import AdapterKey
from shared.messages.operations import AskFingerprint, Fingerprint, HoldResult, LoadAdapter, UnloadAdapter

_TIERS = ("gpu", "ram", "disk")


class Operations:
    def __init__(self, means: Means) -> None:
        self._by = means

    async def load(self, ask: LoadAdapter, ids: tuple[str, ...]) -> HoldResult:
        key = AdapterKey(adapter_id=ask.adapter_id, digest=ask.digest)
        record = self._by.records.get(key)
        if record is None:
            return self._held(key, ok=False, reason="this replica knows no such adapter")
        if self._by.records.is_retired(key):
            return self._held(
                key, ok=False, reason=f"{ask.adapter_id} is {record.status}: nothing may ask for it any more"
            )
        if ask.tier not in _TIERS:
            return self._held(key, ok=False, reason=f"{ask.tier!r} is no tier: gpu, ram or disk")
        try:
            async with asyncio.timeout(OPERATION_DEADLINE_S):
                await self._by.loader.bring(record, ask.tier)
        except TimeoutError:
            return self._held(key, ok=False, reason=f"not loaded within {OPERATION_DEADLINE_S:g} s")
        except (AdapterFailed, AdapterUnavailable) as error:
            return self._held(key, ok=False, reason=str(error))
        kept = "" if record.wanted else f"; nobody else wants it, so it may leave after {KEPT_S:g} s"
        return self._held(key, ok=True, reason=f"resident where it was wanted{kept}")

    async def unload(self, ask: UnloadAdapter, ids: tuple[str, ...]) -> HoldResult:
        key = AdapterKey(adapter_id=ask.adapter_id, digest=ask.digest)
        self._by.loader.keeping.forget(key)
        reason = await self._by.loader.drop(key)
        return self._held(key, ok=reason is None, reason=reason or "dropped from every tier")

    async def fingerprint(self, ask: AskFingerprint, ids: tuple[str, ...]) -> Fingerprint:
        """Of what is really in the slot, and does there. Raises AdapterUnavailable, AdapterFailed."""
        key = AdapterKey(adapter_id=ask.adapter_id, digest=ask.digest)
        record = self._by.records.get(key)
        if record is None:
            raise AdapterUnavailable(f"this replica knows no adapter {ask.adapter_id} with this digest")
        reference = await self._by.loader.acquire_proven(record)
        try:
            found = await self._by.effects.measure(reference.slot)
        finally:
            reference.release()
        return Fingerprint(
            adapter_id=ask.adapter_id,
            digest=ask.digest,
            replica_id=self._by.identity.replica_id,
            fingerprint=f"{found.engine}/{found.slot_digest}",
            engine_build=self._by.watch.info.build,
            effect=found,
        )

    def _held(self, key: AdapterKey, *, ok: bool, reason: str) -> HoldResult:
        return HoldResult(adapter_id=key.adapter_id, ok=ok, tier=self._by.loader.tier_of(key), reason=reason)
