"""Moving aliases from one base model to the other, one at a time, and back."""

from __future__ import annotations

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.base_migration.base_moves import unknown_migration
from services.registry.base_migration.move_sweep import MoveSweep
from services.registry.core.base_migration import moves
from services.registry.core.base_migration.move_items import Item
from services.registry.core.base_migration.moves import Migration, Turn
from services.registry.core.deployment.aliases import AliasState, Change, Denied
from services.registry.deployment.aliasing import Aliasing
from services.registry.fleet import UNANSWERED, Fleet
from services.registry.io import adapter_rows, alias_rows, migration_rows
from services.registry.io.database import Database

_LONGEST_LINE = 16
"""Versions that an alias may have come past since it was cut over, and still be rolled back by its migration."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """What an alias means now. `changed` is false if it did so before."""

    alias: str
    adapter_id: str
    previous_adapter_id: str | None
    changed: bool


class _Scene(msgspec.Struct, frozen=True, kw_only=True):
    """An alias of a migration, and the item that it belongs to."""

    migration: Migration
    means: str
    item: Item | None


class Cutovers:
    """An alias moves in one transaction of its own, as in any deployment; its item follows from what the alias means.
    So whatever ends a call in between, calling again does the rest. Everything here may raise DatabaseUnavailable or
    Collision."""

    def __init__(self, database: Database, fleet: Fleet, aliasing: Aliasing, sweep: MoveSweep) -> None:
        self._database = database
        self._fleet = fleet
        self._aliasing = aliasing
        self._sweep = sweep

    async def cut_over(self, migration_id: str, alias: str, wish: Turn, *, force: bool = False) -> Cut | Denied:
        """The alias means the successor of what it means, which is made resident first; with `force` that is not
        waited for."""
        scene = await self._scene(migration_id, alias)
        if isinstance(scene, Denied):
            return scene
        if scene.item is not None and scene.means != scene.item.adapter_id:
            return Cut(alias=alias, adapter_id=scene.means, previous_adapter_id=scene.item.adapter_id, changed=False)
        if (fault := moves.unready(scene.migration, scene.item, alias)) is not None:
            return fault
        successor_id = (scene.item.successor_id if scene.item else None) or ""
        if not force and (fault := await self._fault_of_pool(alias, successor_id)) is not None:
            return fault
        return await self._deploy(scene, alias, successor_id, _change(scene, wish, force))

    async def roll_back(self, migration_id: str, alias: str, wish: Turn) -> Cut | Denied:
        """The alias means the version on the old base again; it stays there until it is cut over by name."""
        scene = await self._scene(migration_id, alias)
        if isinstance(scene, Denied):
            return scene
        if (fault := moves.irrevocable(scene.migration, scene.item, alias)) is not None or scene.item is None:
            return fault or moves.not_in_migration(scene.migration, alias)
        if scene.means == scene.item.adapter_id:
            return Cut(alias=alias, adapter_id=scene.means, previous_adapter_id=None, changed=False)
        return await self._deploy(scene, alias, scene.item.adapter_id, _change(scene, wish, force=True))

    async def _fault_of_pool(self, alias: str, successor_id: str) -> Denied | None:
        """A deployment within a pool without replicas harms nobody; this one leaves a pool that serves."""
        async with self._database.read() as connection:
            successor = await adapter_rows.find(connection, successor_id)
        if successor is None:
            return None  # the deployment that follows says so, as it does if placement is silent
        try:
            ready = await self._fleet.ready_replicas(successor)
        except UNANSWERED:
            return None
        return None if ready else moves.nobody_serves(alias, successor.pool_id)

    async def _deploy(self, scene: _Scene, alias: str, adapter_id: str, change: Change) -> Cut | Denied:
        state = await self._aliasing.deploy(alias, adapter_id, change=change)
        if isinstance(state, Denied):
            return state
        if scene.item is not None:
            await self._sweep.settle(scene.migration, [scene.item.adapter_id])
        return Cut(alias=alias, adapter_id=adapter_id, previous_adapter_id=scene.means, changed=True)

    async def _scene(self, migration_id: str, alias: str) -> _Scene | Denied:
        """With the item as it is after all that has happened so far."""
        async with self._database.read() as connection:
            migration = await migration_rows.find(connection, migration_id)
            state = await alias_rows.find(connection, alias)
            if migration is None:
                return unknown_migration(migration_id)
            if state is None:
                return moves.not_in_migration(migration, alias)
            line = await _line(connection, state)
        await self._sweep.settle(migration, line)
        async with self._database.read() as connection:
            items = {item.adapter_id: item for item in await migration_rows.among(connection, migration_id, line)}
        own = next((items[adapter_id] for adapter_id in line if adapter_id in items), None)
        return _Scene(migration=migration, means=state.adapter_id, item=own)


async def _line(connection: AsyncConnection, state: AliasState) -> list[str]:
    """What the alias means, what that came from, and so on."""
    line: list[str] = []
    adapter_id: str | None = state.adapter_id
    while adapter_id is not None and adapter_id not in line and len(line) < _LONGEST_LINE:
        line.append(adapter_id)
        adapter = await adapter_rows.find(connection, adapter_id)
        adapter_id = adapter.announced.predecessor_id if adapter else None
    return line


def _change(scene: _Scene, wish: Turn, force: bool) -> Change:
    reason = wish.reason or f"migration {scene.migration.migration_id}"
    return Change(actor=wish.actor, reason=reason, expected_adapter_id=scene.means, force=force)
