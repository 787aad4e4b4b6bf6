"""Base models: what adapters are checked against."""

from __future__ import annotations

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.base_migration.bases import StoredBase, decide_base_model
from services.registry.core.base_migration.pointers import StillNeeded, decide_unneeded
from services.registry.core.deployment.aliases import Denied
from services.registry.deployment.alias_changes import told
from services.registry.io import alias_rows, base_model_rows, outbox_rows, pointer_rows
from services.registry.io.database import Database
from services.registry.io.notes import Note, removal, value
from services.registry.io.rows import Page
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
        """A new base model; or a new name, context limit or more rank classes for a known one, which is served
        again if it was retired."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            known = [one.record for one in await base_model_rows.every(connection)]
            taken = await alias_rows.find(connection, record.name)
            if (fault := decide_base_model(record, known, frozenset({taken.alias} if taken else ()))) is not None:
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

    async def listed(self, page: Page) -> list[BaseModelRecord]:
        """Those that are served."""
        async with self._database.read() as connection:
            return await base_model_rows.listed(connection, page)

    async def every(self, page: Page) -> list[StoredBase]:
        """Those that are retired as well."""
        async with self._database.read() as connection:
            return await base_model_rows.every(connection, page)

    async def retire(self, base_model_hash: str) -> StoredBase | StillNeeded | Denied:
        """Nothing is registered or deployed on it any more; done already, it stays done."""
        async with self._database.write() as connection:
            base = await base_model_rows.stored(connection, base_model_hash, to_change=True)
            if base is None:
                message = f"There is no base model with the hash {base_model_hash[:64]!r}."
                return Denied(kind="missing", code="base_model_unknown", message=message)
            if base.retired_at_s is not None:
                return base
            standing = [
                *await pointer_rows.aliases(connection, base.record),
                *await pointer_rows.rollbacks(connection, base.record),
                *await pointer_rows.adapters(connection, base.record),
                *await pointer_rows.migrations(connection, base.record),
            ]
            if (needed := decide_unneeded(base.record.name, standing)) is not None:
                return needed
            return await retired(connection, base.record, self._clock.wall_s())


async def retired(connection: AsyncConnection, base: BaseModelRecord, now_s: float) -> StoredBase:
    """In the transaction that found that nothing points at it."""
    await base_model_rows.retire(connection, base.base_model_hash, now_s)
    await outbox_rows.append(connection, [removal(catalog.BASE_MODEL, base.base_model_hash)], now_s)
    return StoredBase(record=base, retired_at_s=now_s)


async def _renamed(connection: AsyncConnection, record: BaseModelRecord) -> list[Note]:
    """Alias records carry the base's name, so that a gateway needs one look-up."""
    notes = []
    for alias in sorted({pointer.name for pointer in await pointer_rows.aliases(connection, record)}):
        if (state := await alias_rows.find(connection, alias)) is not None:
            notes.append(await told(connection, state))
    return notes
