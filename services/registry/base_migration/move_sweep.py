"""Items of migrations follow what becomes of adapters and aliases, whoever changes those."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.base_migration import move_facts
from services.registry.core.base_migration.move_items import Item, Seen, settle
from services.registry.core.base_migration.move_plan import blocked
from services.registry.core.base_migration.moves import OPEN, Migration
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, base_model_rows, migration_rows, outbox_rows, usage_rows
from services.registry.io.database import Database
from services.registry.io.move_sights import PAGE, Marks, Sights, look, marks, touched
from services.registry.io.notes import Note
from shared.messages.desired import BaseModelRecord
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_log = get_logger(__name__)

TRAFFIC_S = 86400.0
"""Over which traffic is measured."""

Steps = list[tuple[Item, Item]]
"""Items as they were and as they are to be."""


class _Glance(msgspec.Struct, frozen=True, kw_only=True):
    """What the tables looked like when all items of a migration had followed them. `target` is the base that it moves
    to: a rank class that is added there frees what was held."""

    marks: Marks
    migration: Migration
    target: BaseModelRecord | None


class MoveSweep:
    """Everything here may raise DatabaseUnavailable or Collision; what was not settled is settled the next time."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._glances: dict[str, _Glance] = {}

    async def turn(self) -> None:
        """Settle what has changed since the last turn in every open migration."""
        async with self._database.read() as connection:
            opened = await migration_rows.opened(connection)
        ids = {migration.migration_id for migration in opened}
        self._glances = {one: glance for one, glance in self._glances.items() if one in ids}
        for migration in opened:
            await self._follow(migration)

    async def _follow(self, migration: Migration) -> None:
        """Only what has changed, if the whole migration was gone through before as it is now."""
        before = self._glances.get(migration.migration_id)
        async with self._database.read() as connection:
            target = await base_model_rows.find(connection, migration.to_base_model_hash)
            glance = _Glance(marks=await marks(connection), migration=migration, target=target)
            same = before is not None and (before.migration, before.target) == (migration, target)
            changed = await touched(connection, before.marks) if before is not None and same else None
        await (self._settle_all(migration) if changed is None else self.settle(migration, changed))
        self._glances[migration.migration_id] = glance

    async def settle(self, migration: Migration, adapter_ids: Sequence[str]) -> None:
        """Only these, also what has become active on the old base since; of a migration that has ended none."""
        if migration.state not in OPEN:
            return
        for at in range(0, len(adapter_ids), PAGE):
            await self._take_in(migration, adapter_ids[at : at + PAGE])
            await self._settle(migration, adapter_ids[at : at + PAGE])

    async def _settle_all(self, migration: Migration) -> None:
        await self._take_in(migration)
        after = ""
        while page := await self._page(migration.migration_id, after):
            await self._settle(migration, page)
            after = page[-1]

    async def _page(self, migration_id: str, after: str) -> list[str]:
        async with self._database.read() as connection:
            return await migration_rows.item_ids(connection, migration_id, after, PAGE)

    async def _take_in(self, migration: Migration, adapter_ids: Sequence[str] | None = None) -> None:
        now_s = self._clock.wall_s()
        async with self._database.read() as connection:
            fresh = await newcomers(connection, migration, now_s, adapter_ids)
        if fresh:
            async with self._database.write() as connection:
                await migration_rows.add_items(connection, await newcomers(connection, migration, now_s, adapter_ids))

    async def _settle(self, migration: Migration, adapter_ids: Sequence[str]) -> None:
        """A page of them, until none has another step to take."""
        while adapter_ids:
            adapter_ids = await self._step(migration, adapter_ids)

    async def _step(self, migration: Migration, adapter_ids: Sequence[str]) -> list[str]:
        """Those that took one. Most take none, which is found out beside those who write; what is written is decided
        anew while nobody else does."""
        now_s = self._clock.wall_s()
        async with self._database.read() as connection:
            steps = await _steps(connection, migration, adapter_ids, now_s)
        if not steps:
            return []
        async with self._database.write() as connection:
            current = await migration_rows.find(connection, migration.migration_id, to_change=True)
            if current is None or current.state not in OPEN:
                return []
            steps = await _steps(connection, current, [was.adapter_id for was, _ in steps], now_s)
            await outbox_rows.append(connection, await take(connection, current, steps), now_s)
        return [was.adapter_id for was, _ in steps]


async def newcomers(
    connection: AsyncConnection, migration: Migration, now_s: float, adapter_ids: Sequence[str] | None = None
) -> list[Item]:
    """Items for the active adapters of the old base that have none yet; of all, or of these."""
    base = await base_model_rows.find(connection, migration.from_base_model_hash)
    if base is None:
        return []
    tenants = await migration_rows.newcomers(connection, migration.migration_id, base, adapter_ids)
    rates = await usage_rows.rates(connection, list(tenants), now_s - TRAFFIC_S, now_s=now_s)
    return [
        Item(
            migration_id=migration.migration_id,
            adapter_id=adapter_id,
            tenant_id=tenant_id,
            state="planned",
            reason="no alias means it",
            updated_at_s=now_s,
            requests_per_day=rates[adapter_id],
        )
        for adapter_id, tenant_id in tenants.items()
    ]


async def take(connection: AsyncConnection, migration: Migration, steps: Steps, actor: str = "") -> list[Note]:
    """Write the steps that nobody else has taken; what is to be told of them."""
    taken = [step for step in steps if await migration_rows.save_item(connection, *step)]
    moved = [(was, now) for was, now in taken if was.state != now.state]
    asked = [now for _, now in moved if now.state == "requested"]
    adapters = await adapter_rows.among(connection, [item.adapter_id for item in asked])
    requests = [move_facts.retrain_requested(migration, item, adapters[item.adapter_id]) for item in asked]
    for _, now in moved:
        _log.info("an adapter moved in its migration", adapter_id=now.adapter_id, state=now.state, reason=now.reason)
    return [*(move_facts.item_moved(now, actor) for _, now in moved), *requests]


async def _steps(connection: AsyncConnection, migration: Migration, adapter_ids: Sequence[str], now_s: float) -> Steps:
    items = await migration_rows.among(connection, migration.migration_id, adapter_ids)
    new = await base_model_rows.find(connection, migration.to_base_model_hash)
    if new is None:
        return []
    sights = await look(connection, items, migration.to_base_model_hash)
    adapters = await adapter_rows.among(connection, list(_to_be_asked(items, sights)))
    steps = []
    for item in items:
        seen = _seen(item, sights, migration, _why_not(adapters.get(item.adapter_id), new))
        if (now := settle(item, seen, now_s)) != item:
            steps.append((item, now))
    return steps


def _to_be_asked(items: Iterable[Item], sights: Sights) -> Iterable[str]:
    """Of these it matters whether they can be trained again."""
    waiting = (item for item in items if item.state in ("planned", "held"))
    return (item.adapter_id for item in waiting if sights.naming.get(item.adapter_id))


def _why_not(adapter: StoredAdapter | None, new: BaseModelRecord) -> str | None:
    return None if adapter is None else blocked(adapter, new)


def _seen(item: Item, sights: Sights, migration: Migration, why_not: str | None) -> Seen:
    naming = sights.naming.get(item.adapter_id, set())
    moved = ({*item.aliases, *item.moved} & sights.moved) - naming
    return Seen(
        naming=tuple(sorted(naming)),
        moved=tuple(sorted(moved)),
        successors=tuple(sights.successors.get(item.adapter_id, ())),
        blocked=why_not,
        holding=migration.state != "running",
    )
