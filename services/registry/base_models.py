"""Base models: what adapters are checked against."""

from __future__ import annotations

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.alias_changes import told
from services.registry.core.aliases import Denied
from services.registry.core.bases import decide_base_model
from services.registry.io import adapter_rows, alias_rows, base_model_rows, outbox_rows
from services.registry.io.database import Database
from services.registry.io.notes import Note, value
from shared.contracts import catalog
from shared.messages.desired import BaseModelRecord
from shared.runtime.clock import Clock


class SavedBaseModel(msgspec.Struct, frozen=True, kw_only=True):
    base_model: BaseModelRecord
    created: bool


class BaseModels:
    """Everything here may raise DatabaseUnavailable; nothing was changed then."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def save(self, record: BaseModelRecord) -> SavedBaseModel | Denied:
        """A new base model; or a new name, context limit or more rank classes for a known one."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            known = await base_model_rows.listed(connection)
            names = frozenset(state.alias for state in await alias_rows.listed(connection))
            if (fault := decide_base_model(record, known, names)) is not None:
                return fault
            before = next((one for one in known if one.base_model_hash == record.base_model_hash), None)
            created_at_s = before.created_at_s if before else record.created_at_s or now_s
            record = msgspec.structs.replace(record, created_at_s=created_at_s)
            created = await base_model_rows.save(connection, record)
            notes = [value(catalog.BASE_MODEL, record, record.base_model_hash)]
            if before is not None and before.name != record.name:
                notes.extend(await _renamed(connection, record))
            await outbox_rows.append(connection, notes, now_s)
        return SavedBaseModel(base_model=record, created=created)

    async def listed(self) -> list[BaseModelRecord]:
        async with self._database.read() as connection:
            return await base_model_rows.listed(connection)


async def _renamed(connection: AsyncConnection, record: BaseModelRecord) -> list[Note]:
    """Alias records carry the base's name, so that a gateway needs one look-up."""
    notes = []
    for state in await alias_rows.listed(connection):
        named = [await adapter_rows.find(connection, adapter_id) for adapter_id in state.named]
        if any(one is not None and one.announced.base_model_hash == record.base_model_hash for one in named):
            notes.append(await told(connection, state))
    return notes
