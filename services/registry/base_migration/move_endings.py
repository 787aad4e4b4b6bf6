"""The end of a migration: the old base's adapters are retired, and then the base itself."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.base_migration import base_models, move_facts
from services.registry.base_migration.base_moves import unknown_migration
from services.registry.base_migration.move_sweep import take
from services.registry.core import lifecycle, records
from services.registry.core.base_migration import move_items, moves
from services.registry.core.base_migration.move_items import UNDONE, Item
from services.registry.core.base_migration.moves import Migration, Turn
from services.registry.core.base_migration.pointers import StillNeeded, decide_unneeded
from services.registry.core.deployment.aliases import Denied
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, base_model_rows, migration_rows, outbox_rows, pointer_rows
from services.registry.io.database import Database
from services.registry.io.migration_rows import ItemFilter
from services.registry.io.move_sights import PAGE
from shared.messages.desired import BaseModelRecord
from shared.runtime.clock import Clock

_PAGES_A_CALL = 5
"""So that a call ends within moments, however many adapters there are."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """`left` adapters of the old base are still to be retired: call again."""

    migration: Migration
    left: int


class Endings:
    """Everything here may raise DatabaseUnavailable or Collision; what was retired stays so, and calling again does
    the rest."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def finish(self, migration_id: str, wish: Turn) -> Ending | StillNeeded | Denied:
        """Refused, with all that still points there, until nothing does. Ways back to the old base end with it."""
        outcome = await self._page(migration_id, wish)
        for _ in range(_PAGES_A_CALL - 1):
            if not isinstance(outcome, Ending) or outcome.left == 0:
                break
            outcome = await self._page(migration_id, wish)
        return outcome

    async def _page(self, migration_id: str, wish: Turn) -> Ending | StillNeeded | Denied:
        async with self._database.write() as connection:
            migration = await migration_rows.find(connection, migration_id, to_change=True)
            if migration is None:
                return unknown_migration(migration_id)
            base = await base_model_rows.find(connection, migration.from_base_model_hash, to_change=True)
            if migration.state == "finished" or base is None:
                return Ending(migration=migration, left=0)
            ground = _Ground(
                connection=connection, migration=migration, base=base, wish=wish, now_s=self._clock.wall_s()
            )
            return await _turn(ground)


class _Ground(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction on the way to the end."""

    connection: AsyncConnection
    migration: Migration
    base: BaseModelRecord
    wish: Turn
    now_s: float


async def _turn(by: _Ground) -> Ending | StillNeeded | Denied:
    """The adapters are locked before anybody is asked who means them: a deployment locks them as well."""
    finishing = moves.turn(by.migration, "finishing", by.wish, by.now_s)
    if isinstance(finishing, Denied):
        return finishing
    adapters = await _locked(by)
    if (needed := await _still_needed(by)) is not None:
        # Somebody has deployed such a version again: it can be cut over while the migration is running.
        await _save(by, moves.turn(by.migration, "running", by.wish, by.now_s))
        return needed
    await _save(by, finishing)
    await _retire(by, adapters)
    if (left := await pointer_rows.count_active(by.connection, by.base)) > 0:
        return Ending(migration=finishing, left=left)
    return await _end(by, finishing)


async def _locked(by: _Ground) -> list[StoredAdapter]:
    ids = await pointer_rows.active(by.connection, by.base, PAGE)
    found = [await adapter_rows.find(by.connection, adapter_id, to_change=True) for adapter_id in ids]
    return [adapter for adapter in found if adapter is not None and adapter.status == "active"]


async def _still_needed(by: _Ground) -> StillNeeded | None:
    standing = [
        *await pointer_rows.aliases(by.connection, by.base),
        *await pointer_rows.guards(by.connection, by.base),
        *await pointer_rows.settling(by.connection, by.base),
    ]
    return decide_unneeded(by.base.name, standing)


async def _retire(by: _Ground, adapters: Sequence[StoredAdapter]) -> None:
    reason = f"migration {by.migration.migration_id} is finished"
    for adapter in adapters:
        step = lifecycle.move(adapter.status, "retired", reason, by.now_s)
        retired = records.after_move(adapter, step)
        await adapter_rows.save(by.connection, retired, [step])
        await outbox_rows.append(by.connection, facts.retired(retired), by.now_s)
    ids = [adapter.adapter_id for adapter in adapters]
    await _done(by, await migration_rows.among(by.connection, by.migration.migration_id, ids))


async def _done(by: _Ground, items: Sequence[Item]) -> None:
    steps = [(item, move_items.finish(item, by.now_s)) for item in items]
    notes = await take(by.connection, by.migration, steps, by.wish.actor)
    await outbox_rows.append(by.connection, notes, by.now_s)


async def _end(by: _Ground, finishing: Migration) -> Ending | Denied:
    """Items are left whose adapters were retired by somebody else."""
    undone = ItemFilter(states=UNDONE)
    await _done(by, await migration_rows.items(by.connection, finishing.migration_id, undone))
    await base_models.retired(by.connection, by.base, by.now_s)
    ended = moves.turn(finishing, "finished", by.wish, by.now_s)
    await _save(by, ended)
    return ended if isinstance(ended, Denied) else Ending(migration=ended, left=0)


async def _save(by: _Ground, turned: Migration | Denied) -> None:
    """Two turns of one moment are told as two."""
    if isinstance(turned, Migration) and turned != by.migration:
        await migration_rows.save(by.connection, turned)
        await outbox_rows.append(by.connection, [move_facts.migration_moved(turned)], by.now_s)
