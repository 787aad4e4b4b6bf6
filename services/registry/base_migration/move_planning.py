"""The plan of a move to another base model: who and what is concerned, and what it would cost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.base_migration.move_sweep import TRAFFIC_S
from services.registry.core.base_migration import move_plan
from services.registry.core.base_migration.move_plan import PlanRow, PlanTotals, Terms, Use
from services.registry.core.deployment.aliases import Denied
from services.registry.core.records import StoredAdapter
from services.registry.fleet import UNANSWERED, Fleet
from services.registry.io import adapter_rows, base_model_rows, move_sights, pointer_rows, usage_rows
from services.registry.io.database import Database
from services.registry.io.move_sights import PAGE
from shared.bus.port import AskFailed
from shared.messages.desired import BaseModelRecord
from shared.runtime.clock import Clock


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """From which base model to which, by their hashes, and at what cost."""

    from_base_model_hash: str
    to_base_model_hash: str
    terms: Terms = Terms()


class Bases(msgspec.Struct, frozen=True, kw_only=True):
    old: BaseModelRecord
    new: BaseModelRecord


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One page of it; the `totals` of all pages stand on the first, which has no `after`."""

    rows: list[PlanRow]
    totals: PlanTotals | None


class Planning:
    """Changes nothing. May raise DatabaseUnavailable."""

    def __init__(self, database: Database, fleet: Fleet, clock: Clock) -> None:
        self._database = database
        self._fleet = fleet
        self._clock = clock

    async def plan(self, route: Route, after: str, limit: int) -> Plan | Denied:
        """Every adapter that is active or may become so, by id; `after` is the last one of the page before."""
        async with self._database.read() as connection:
            bases = await served(connection, route)
            if isinstance(bases, Denied):
                return bases
            wanted = limit if after else None  # the first page counts everything
            adapter_ids = await pointer_rows.held(connection, bases.old, after, wanted)
            rows = await self._rows(connection, adapter_ids, bases.new, route.terms)
        told = await self._with_owners(rows[:limit])
        return Plan(rows=told, totals=None if after else move_plan.totals(rows))

    async def _rows(
        self, connection: AsyncConnection, adapter_ids: Sequence[str], new: BaseModelRecord, terms: Terms
    ) -> list[PlanRow]:
        now_s = self._clock.wall_s()
        rates = await usage_rows.rates(connection, adapter_ids, now_s - TRAFFIC_S, now_s=now_s)
        rows: list[PlanRow] = []
        for at in range(0, len(adapter_ids), PAGE):
            some = adapter_ids[at : at + PAGE]
            adapters = await adapter_rows.among(connection, some)
            naming = await move_sights.naming(connection, some)
            for adapter_id in some:
                aliases = tuple(sorted(naming.get(adapter_id, ())))
                use = Use(aliases=aliases, requests_per_day=rates[adapter_id])
                rows.append(move_plan.plan_row(adapters[adapter_id], new, use, terms))
        return rows

    async def _with_owners(self, rows: Sequence[PlanRow]) -> list[PlanRow]:
        """As far as placement says; one that is silent is not asked again."""
        told = list(rows)
        async with self._database.read() as connection:
            adapters = await adapter_rows.among(connection, [row.adapter_id for row in rows])
        for at, row in enumerate(rows):
            try:
                told[at] = msgspec.structs.replace(row, owners=await self._owners(adapters.get(row.adapter_id)))
            except UNANSWERED:
                break
        return told

    async def _owners(self, adapter: StoredAdapter | None) -> tuple[str, ...]:
        try:
            return () if adapter is None else await self._fleet.owners(adapter)
        except AskFailed:
            return ()  # placement answers, and does not know this one yet


async def served(connection: AsyncConnection, route: Route, *, to_change: bool = False) -> Bases | Denied:
    """Both ends of the route. With `to_change` nobody else starts a move from the old base, or retires it, before
    this transaction ends."""
    old = await base_model_rows.find(connection, route.from_base_model_hash, to_change=to_change)
    new = await base_model_rows.find(connection, route.to_base_model_hash)
    if old is None:
        return move_plan.base_unknown(route.from_base_model_hash, "from_base_model_hash")
    if new is None:
        return move_plan.base_unknown(route.to_base_model_hash, "to_base_model_hash")
    return move_plan.same_base() if old.base_model_hash == new.base_model_hash else Bases(old=old, new=new)
