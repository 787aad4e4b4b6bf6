"""A replica says that the stored bytes of an active adapter are gone or wrong: is it so?"""

from __future__ import annotations

import asyncio
import hashlib

from services.registry import facts
from services.registry.core import lifecycle, records
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, alias_rows, outbox_rows, wrong_bytes
from services.registry.io.database import Database
from services.registry.io.meters import Meters
from shared.messages.adapters import AdapterLoadFailed
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.store.port import ObjectMissing, ObjectStore

_BELIEVED_S = 60.0
"""How long a look that found everything right is not repeated: a whole pool may complain of one adapter."""
_log = get_logger(__name__)


class LostBytes:
    def __init__(self, database: Database, store: ObjectStore, clock: Clock, meters: Meters) -> None:
        self._database = database
        self._store = store
        self._clock = clock
        self._meters = meters
        self._found_right: dict[str, float] = {}

    async def look(self, told: AdapterLoadFailed) -> None:
        """Fails the adapter if the store itself shows that its bytes are gone or wrong, and else does nothing. Wrong
        bytes leave the store, so that the file can be uploaded again and is not taken for what is there already.
        Raises StoreUnavailable, DatabaseUnavailable: then nothing is known, and the same complaint may come again."""
        async with self._database.read() as connection:
            adapter = await adapter_rows.find(connection, told.adapter_id)
        if adapter is None or adapter.status != "active" or adapter.digest != told.digest:
            return
        if self._clock.now_s() < self._found_right.get(adapter.store_key, 0.0):
            return
        fault = await self._fault(adapter)
        if fault is None:
            self._believe(adapter.store_key)
            _log.warning("a replica cannot load what is right in the store", **_said(told))
            return
        _log.error("the stored bytes of an adapter are lost", fault=fault, **_said(told))
        await self._fail(adapter.adapter_id, fault)

    async def _fault(self, adapter: StoredAdapter) -> str | None:
        digest = hashlib.sha256()
        version = await self._store.version(adapter.store_key)
        try:
            async for chunk in self._store.read(adapter.store_key):
                await asyncio.to_thread(digest.update, chunk)
        except ObjectMissing:
            return "its weights are no longer in the store"
        if digest.hexdigest() != adapter.digest:
            await wrong_bytes.remove(self._store, adapter.store_key, version)
            return f"its weights in the store are corrupt: their SHA-256 is {digest.hexdigest()}"
        return None

    async def _fail(self, adapter_id: str, fault: str) -> None:
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None or adapter.status != "active":
                return
            step = lifecycle.lose(fault, now_s)
            failed = records.after_move(adapter, step)
            aliased = bool(await alias_rows.naming(connection, adapter_id))
            await adapter_rows.save(connection, failed, [step])
            await outbox_rows.append(connection, facts.failed(failed, aliased=aliased), now_s)
        self._meters.lost()

    def _believe(self, store_key: str) -> None:
        now_s = self._clock.now_s()
        self._found_right = {key: until_s for key, until_s in self._found_right.items() if until_s > now_s}
        self._found_right[store_key] = now_s + _BELIEVED_S


def _said(told: AdapterLoadFailed) -> dict[str, str]:
    return {"adapter_id": told.adapter_id, "replica_id": told.replica_id, "code": told.code, "reason": told.reason}
