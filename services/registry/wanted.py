"""Adapters that nobody needs leave every tier: an alias means them, or a moment is set until which they are wanted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, alias_rows, outbox_rows, wanted_rows
from services.registry.io.database import Database
from services.registry.io.notes import Note
from shared.runtime.clock import Clock

_AT_ONCE = 200


async def want(connection: AsyncConnection, adapter_id: str, until_s: float | None = None) -> list[Note]:
    """Placement gives it owners from now on. Without `until_s` an alias is to mean it in this transaction."""
    adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
    if adapter is None or _as_long_already(adapter, until_s):
        return []
    if until_s is not None and adapter.wanted and await alias_rows.naming(connection, adapter_id):
        return []
    return await _set(connection, adapter, wanted=True, until_s=until_s)


async def let_go(connection: AsyncConnection, adapter_ids: Iterable[str]) -> list[Note]:
    """Those of them that no alias means leave every tier as soon as no request runs on them. A moment that was set
    for one is over with it: it has been deployed, and is not any more."""
    notes: list[Note] = []
    for adapter_id in sorted(adapter_ids):
        adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
        if adapter is None:
            continue
        needed = adapter.status != "active" or bool(await alias_rows.naming(connection, adapter_id))
        notes += await _set(connection, adapter, wanted=needed and adapter.wanted, until_s=None)
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
