"""Adapters, their history and their evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core import lifecycle
from services.registry.core.lifecycle import Move
from services.registry.core.records import StoredAdapter
from services.registry.core.turns import Entrant
from services.registry.io.rows import columns_of
from services.registry.io.tables import ADAPTER_STATES, ADAPTERS, EVALUATIONS
from shared.messages.adapters import AdapterRegistered
from shared.messages.identity import is_adapter_id
from shared.messages.operations import Evaluation

_ANNOUNCED = AdapterRegistered.__struct_fields__
_OF_A_MOVE = ("state", "reason", "at_s", "actor")
# Made once: what they are compiled to, and what their rows look like, is then found again, for one row and for many.
_ADD = insert(ADAPTERS)
_CHANGE = update(ADAPTERS).where(ADAPTERS.c.adapter_id == bindparam("changed_id"))
_REMEMBER = insert(ADAPTER_STATES)
_FIND = select(ADAPTERS).where(ADAPTERS.c.adapter_id == bindparam("sought_id"))
_FIND_TO_CHANGE = _FIND.with_for_update()
_AMONG = select(ADAPTERS).where(ADAPTERS.c.adapter_id.in_(bindparam("sought_ids", expanding=True)))
_AMONG_TO_CHANGE = _AMONG.with_for_update()

Moved = tuple[StoredAdapter, Move]
"""An adapter as it is now, and how it came there."""


class AdapterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which adapters to list, by id; `after` is the last id of the page before."""

    tenant_id: str | None = None
    statuses: tuple[str, ...] = ()
    after: str = ""
    limit: int | None = None


async def find(connection: AsyncConnection, adapter_id: str, *, to_change: bool = False) -> StoredAdapter | None:
    """With `to_change` nobody else changes it before this transaction ends."""
    row = (await connection.execute(_FIND_TO_CHANGE if to_change else _FIND, {"sought_id": adapter_id})).first()
    return None if row is None else _adapter(row)


async def listed(connection: AsyncConnection, wanted: AdapterFilter) -> list[StoredAdapter]:
    query = select(ADAPTERS).where(ADAPTERS.c.adapter_id > wanted.after).order_by(ADAPTERS.c.adapter_id)
    if wanted.tenant_id is not None:
        query = query.where(ADAPTERS.c.tenant_id == wanted.tenant_id)
    if wanted.statuses:
        query = query.where(ADAPTERS.c.status.in_(wanted.statuses))
    return [_adapter(row) for row in await connection.execute(query.limit(wanted.limit))]


async def tenant_of(connection: AsyncConnection, adapter_id: str | None) -> str | None:
    """None if there is no such adapter, or it is no id at all."""
    if adapter_id is None or not is_adapter_id(adapter_id):
        return None
    query = select(ADAPTERS.c.tenant_id).where(ADAPTERS.c.adapter_id == adapter_id)
    return (await connection.execute(query)).scalar_one_or_none()


async def among(
    connection: AsyncConnection, adapter_ids: Sequence[str], *, to_change: bool = False
) -> dict[str, StoredAdapter]:
    """Those of these ids that there are; as many ids as one statement takes. With `to_change` nobody else changes
    them before this transaction ends."""
    query = _AMONG_TO_CHANGE if to_change else _AMONG
    rows = await connection.execute(query, {"sought_ids": list(adapter_ids)})
    return {adapter.adapter_id: adapter for adapter in map(_adapter, rows)}


async def save(connection: AsyncConnection, adapter: StoredAdapter, moves: Sequence[Move]) -> None:
    """Write the adapter as it is now, and how it came there. A new one that another transaction has
    written as well is a Collision."""
    if (await connection.execute(_CHANGE, _change(adapter))).rowcount == 0:
        await connection.execute(_ADD, _values(adapter))
    await _remember(connection, [(adapter, step) for step in moves])


async def add_all(connection: AsyncConnection, added: Sequence[Moved]) -> None:
    """Of ids that there are not. One that another transaction has written as well is a Collision."""
    if added:
        await connection.execute(_ADD, [_values(adapter) for adapter, _ in added])
        await _remember(connection, added)


async def change_all(connection: AsyncConnection, changed: Sequence[Moved]) -> None:
    """Of ids that there are."""
    if changed:
        await connection.execute(_CHANGE, [_change(adapter) for adapter, _ in changed])
        await _remember(connection, changed)


async def history(connection: AsyncConnection, adapter_id: str) -> list[Move]:
    """Every move, oldest first."""
    query = select(ADAPTER_STATES).where(ADAPTER_STATES.c.adapter_id == adapter_id).order_by(ADAPTER_STATES.c.row_id)
    rows = await connection.execute(query)
    return [Move(**{name: getattr(row, name) for name in _OF_A_MOVE}) for row in rows]


async def overdue(connection: AsyncConnection, statuses: Sequence[str], now_s: float, limit: int) -> list[str]:
    """The ids of adapters in these states whose deadline has passed."""
    query = (
        select(ADAPTERS.c.adapter_id)
        .where(ADAPTERS.c.status.in_(statuses), ADAPTERS.c.deadline_s <= now_s)
        .order_by(ADAPTERS.c.adapter_id)
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())


async def with_file(connection: AsyncConnection, digest: str) -> list[tuple[str, str]]:
    """Status and place in the store of each adapter that was announced with this file; none before it is verified."""
    query = select(ADAPTERS.c.status, ADAPTERS.c.store_key).where(ADAPTERS.c.checksum == digest)
    return [(status, store_key) for status, store_key in await connection.execute(query)]


async def newest_move(connection: AsyncConnection, status: str) -> float | None:
    """When the last of those that are in this state now came to it or was changed in it."""
    query = select(func.max(ADAPTERS.c.updated_at_s)).where(ADAPTERS.c.status == status)
    return (await connection.execute(query)).scalar_one()


async def entrants(connection: AsyncConnection, statuses: Sequence[str]) -> list[Entrant]:
    """Those in these states, in the order in which they were registered."""
    wanted = (ADAPTERS.c.adapter_id, ADAPTERS.c.tenant_id, ADAPTERS.c.alias, ADAPTERS.c.status, ADAPTERS.c.updated_at_s)
    query = select(*wanted).where(ADAPTERS.c.status.in_(statuses)).order_by(ADAPTERS.c.registered_at_s)
    return [
        Entrant(
            adapter_id=row.adapter_id,
            tenant_id=row.tenant_id,
            awaited=row.alias is not None,
            begun=row.status == lifecycle.EVALUATING,
            ready_at_s=row.updated_at_s,
        )
        for row in await connection.execute(query)
    ]


async def add_evaluation(connection: AsyncConnection, evaluation: Evaluation, now_s: float) -> None:
    await connection.execute(insert(EVALUATIONS).values(**msgspec.to_builtins(evaluation), at_s=now_s))


async def evaluations(connection: AsyncConnection, adapter_id: str) -> list[Evaluation]:
    query = select(EVALUATIONS).where(EVALUATIONS.c.adapter_id == adapter_id).order_by(EVALUATIONS.c.row_id)
    rows = (await connection.execute(query)).mappings()
    return [msgspec.convert({name: row[name] for name in Evaluation.__struct_fields__}, Evaluation) for row in rows]


async def _remember(connection: AsyncConnection, moved: Sequence[Moved]) -> None:
    rows = [
        {"adapter_id": adapter.adapter_id, **{name: getattr(step, name) for name in _OF_A_MOVE}}
        for adapter, step in moved
    ]
    if rows:
        await connection.execute(_REMEMBER, rows)


def _change(adapter: StoredAdapter) -> dict[str, Any]:
    """The key stays out of it: SQLite would look for every row that refers to it."""
    values = _values(adapter)
    return {"changed_id": values.pop("adapter_id"), **values}


def _values(adapter: StoredAdapter) -> dict[str, Any]:
    plain = msgspec.to_builtins(adapter)
    return {**plain.pop("announced"), **plain}


def _adapter(row: Row[Any]) -> StoredAdapter:
    columns = columns_of(row)
    announced = {name: columns.pop(name) for name in _ANNOUNCED}
    return msgspec.convert({**columns, "announced": announced}, StoredAdapter)
