"""Migrations: the adapters of one base model on their way to another."""

from __future__ import annotations

import secrets

import msgspec

from services.registry.base_migration import move_facts
from services.registry.base_migration.move_planning import Route, served
from services.registry.base_migration.move_sweep import newcomers, take
from services.registry.core.base_migration import move_items, move_plan, moves
from services.registry.core.base_migration.move_items import Item
from services.registry.core.base_migration.move_progress import Progress, progress
from services.registry.core.base_migration.moves import Migration, Turn
from services.registry.core.defects import quoted
from services.registry.core.deployment.aliases import Denied
from services.registry.io import migration_rows, outbox_rows
from services.registry.io.database import Database
from services.registry.io.migration_rows import ItemFilter
from shared.runtime.clock import Clock


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is false if the same migration was under way already."""

    migration: Migration
    created: bool


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A migration, and how far it has come."""

    migration: Migration
    progress: Progress


class BaseMoves:
    """Everything here may raise DatabaseUnavailable or Collision; nothing was changed then. Every call may be
    repeated."""

    def __init__(self, database: Database, clock: Clock, retrain_deadline_s: float) -> None:
        self._database = database
        self._clock = clock
        self._retrain_deadline_s = retrain_deadline_s

    async def begin(self, route: Route, wish: Turn) -> Started | Denied:
        """Store the migration and its items; pipelines are asked right afterwards, a page of items at a time."""
        now_s = self._clock.wall_s()
        migration = _begun(route, wish, now_s)
        async with self._database.read() as connection:
            items = await newcomers(connection, migration, now_s)
        async with self._database.write() as connection:
            if isinstance(bases := await served(connection, route, to_change=True), Denied):
                return bases
            decided = move_plan.decide_start(migration, await migration_rows.opened(connection))
            if isinstance(decided, Denied):
                return decided
            if decided != migration:
                return Started(migration=decided, created=False)
            await migration_rows.add(connection, migration)
            await migration_rows.add_items(connection, items)
            await outbox_rows.append(connection, [move_facts.migration_moved(migration)], now_s)
        return Started(migration=migration, created=True)

    async def listed(self) -> list[Migration]:
        """The newest first."""
        async with self._database.read() as connection:
            return await migration_rows.listed(connection)

    async def story(self, migration_id: str) -> Story | Denied:
        overdue_since_s = self._clock.wall_s() - self._retrain_deadline_s
        async with self._database.read() as connection:
            migration = await migration_rows.find(connection, migration_id)
            if migration is None:
                return unknown_migration(migration_id)
            counts = await migration_rows.counts(connection, migration_id)
            overdue = await migration_rows.requested_before(connection, migration_id, overdue_since_s)
        return Story(migration=migration, progress=progress(migration, counts, overdue))

    async def items(self, migration_id: str, wanted: ItemFilter) -> list[Item] | Denied:
        async with self._database.read() as connection:
            if await migration_rows.find(connection, migration_id) is None:
                return unknown_migration(migration_id)
            return await migration_rows.items(connection, migration_id, wanted)

    def is_overdue(self, item: Item) -> bool:
        return move_items.is_overdue(item, self._clock.wall_s(), self._retrain_deadline_s)

    async def turn(self, migration_id: str, state: str, wish: Turn) -> Migration | Denied:
        """Hold it, let it go on, or cancel it. What was asked of pipelines and what aliases mean stays as it is."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            migration = await migration_rows.find(connection, migration_id, to_change=True)
            if migration is None:
                return unknown_migration(migration_id)
            turned = moves.turn(migration, state, wish, now_s)
            if isinstance(turned, Denied) or turned == migration:
                return turned
            await migration_rows.save(connection, turned)
            await outbox_rows.append(connection, [move_facts.migration_moved(turned)], now_s)
            return turned

    async def retry(self, migration_id: str, adapter_id: str, wish: Turn) -> Item | Denied:
        """Ask a pipeline once more for what has failed."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            migration = await migration_rows.find(connection, migration_id, to_change=True)
            if migration is None:
                return unknown_migration(migration_id)
            found = await migration_rows.among(connection, migration_id, [adapter_id])
            item = found[0] if found else None
            again = moves.retry(migration, item, adapter_id, now_s)
            if item is None or isinstance(again, Denied) or again == item:
                return again
            notes = await take(connection, migration, [(item, again)], wish.actor)
            await outbox_rows.append(connection, notes, now_s)
            return again


def unknown_migration(migration_id: str) -> Denied:
    message = f"There is no migration {quoted(migration_id)}."
    return Denied(kind="missing", code="migration_unknown", message=message)


def _begun(route: Route, wish: Turn, now_s: float) -> Migration:
    return Migration(
        migration_id=secrets.token_hex(8),
        from_base_model_hash=route.from_base_model_hash,
        to_base_model_hash=route.to_base_model_hash,
        state="running",
        reason=wish.reason,
        gpu_hours_each=route.terms.gpu_hours_each,
        cost_per_gpu_hour=route.terms.usd_per_gpu_hour,
        created_at_s=now_s,
        updated_at_s=now_s,
        actor=wish.actor,
    )
