"""Adapters that nobody needs leave every tier. An alias means them or a guard would go back to them, or a moment is set
until which they are wanted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.core import lifecycle
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, alias_rows, outbox_rows, wanted_rows
from services.registry.io.database import Database
from services.registry.io.notes import Note
from shared.runtime.clock import Clock

_AT_ONCE = 200


async def want(connection: AsyncConnection, adapter_id: str, until_s: float | None = None) -> list[Note]:
    """Placement gives it owners from now on, if replicas may hold it at all. Without `until_s` an alias is to need it
    in this transaction."""
    adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
    if adapter is None or adapter.status not in lifecycle.HELD or _as_long_already(adapter, until_s):
        return []
    if until_s is not None and adapter.wanted and await _is_needed(connection, adapter_id):
        return []
    return await _set(connection, adapter, wanted=True, until_s=until_s)


async def let_go(connection: AsyncConnection, adapter_ids: Iterable[str]) -> list[Note]:
    """Those of them that no alias needs leave every tier as soon as no request runs on them. A moment that was set
    for one is over with it: it has been deployed, and is not any more. Of one that has failed the record goes as well:
    there is no request left to be told why."""
    notes: list[Note] = []
    for adapter_id in sorted(adapter_ids):
        adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
        if adapter is None:
            continue
        is_needed = await _is_needed(connection, adapter_id)
        stays = is_needed or adapter.status != "active"
        notes += await _set(connection, adapter, wanted=stays and adapter.wanted, until_s=None)
        notes += [] if is_needed or adapter.status in lifecycle.HELD else [facts.dropped(adapter)]
    return notes


class Wanted:
    """Looks now and then for adapters whose moment has come. Both may raise DatabaseUnavailable."""

    def __init__(self, database: Database, clock: Clock, keep_warm_s: float) -> None:
        self._database = database
        self._clock = clock
        self._keep_warm_s = keep_warm_s

    async def sweep(self) -> None:
        """Let go of those that were wanted until now."""
        now_s = self._clock.wall_s()
        while True:
            async with self._database.read() as connection:
                due = await wanted_rows.run_out(connection, now_s, _AT_ONCE)
            for adapter_id in due:
                await self._let_go(adapter_id, now_s)
            if len(due) < _AT_ONCE:
                return

    async def bound(self) -> None:
        """Active adapters that were never deployed are kept warm for a while, and not for ever."""
        async with self._database.write(announce=False) as connection:
            await wanted_rows.bound_unnamed(connection, self._clock.wall_s() + self._keep_warm_s)

    async def _let_go(self, adapter_id: str, now_s: float) -> None:
        """Unless it has been wanted for longer since."""
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is not None and adapter.wanted_until_s is not None and adapter.wanted_until_s <= now_s:
                await outbox_rows.append(connection, await let_go(connection, [adapter_id]), now_s)


async def _is_needed(connection: AsyncConnection, adapter_id: str) -> bool:
    """Whether an alias means it, or would go back to it by itself."""
    means = await alias_rows.naming(connection, adapter_id)
    return bool(means or await alias_rows.guarding(connection, adapter_id))


def _as_long_already(adapter: StoredAdapter, until_s: float | None) -> bool:
    if not adapter.wanted:
        return False
    if until_s is None:
        return adapter.wanted_until_s is None
    return adapter.wanted_until_s is not None and adapter.wanted_until_s >= until_s


async def _set(
    connection: AsyncConnection, adapter: StoredAdapter, *, wanted: bool, until_s: float | None
) -> list[Note]:
    """Replicas are told only what is new to them."""
    await wanted_rows.set_wanted(connection, adapter.adapter_id, wanted, until_s)
    if wanted == adapter.wanted:
        return []
    return [facts.held(msgspec.structs.replace(adapter, wanted=wanted, wanted_until_s=until_s))]
