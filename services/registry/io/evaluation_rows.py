"""Evaluation sets and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.gating.evaluation_sets import EvaluationSet
from services.registry.core.gating.gate import Report
from services.registry.io.evaluation_tables import EVALUATION_REPORTS, EVALUATION_SETS
from services.registry.io.rows import columns_of

_SETS = EVALUATION_SETS.c


class SetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation set without its cases."""

    set_id: str
    tenant_id: str
    adapter_id: str
    cases: int
    minimum_score: float
    epsilon: float
    created_at_s: float


async def save_set(connection: AsyncConnection, made: EvaluationSet) -> bool:
    """Whether it is new. One that was there before is the latest again."""
    here = (_SETS.set_id == made.set_id, _SETS.tenant_id == made.tenant_id, _SETS.adapter_id == made.adapter_id)
    again = update(EVALUATION_SETS).where(*here).values(created_at_s=made.created_at_s)
    if (await connection.execute(again)).rowcount > 0:
        return False
    await connection.execute(insert(EVALUATION_SETS).values(msgspec.to_builtins(made)))
    return True


async def set_for(connection: AsyncConnection, tenant_id: str, adapter_id: str) -> EvaluationSet | None:
    """The latest of this adapter alone, else the latest of its tenant."""
    query = (
        select(EVALUATION_SETS)
        .where(_SETS.tenant_id == tenant_id, or_(_SETS.adapter_id == adapter_id, _SETS.adapter_id == ""))
        .order_by(_SETS.adapter_id.desc(), _SETS.created_at_s.desc(), _SETS.set_id)
        .limit(1)
    )
    row = (await connection.execute(query)).first()
    return None if row is None else msgspec.convert(columns_of(row), EvaluationSet)


async def sets(connection: AsyncConnection, tenant_id: str | None, limit: int) -> list[SetSummary]:
    """The latest first."""
    query = select(EVALUATION_SETS).order_by(_SETS.created_at_s.desc(), _SETS.set_id).limit(limit)
    if tenant_id is not None:
        query = query.where(_SETS.tenant_id == tenant_id)
    return [_summary(row) for row in await connection.execute(query)]


async def add_report(connection: AsyncConnection, adapter_id: str, report: Report) -> None:
    values = msgspec.to_builtins(report)
    await connection.execute(insert(EVALUATION_REPORTS).values(adapter_id=adapter_id, **values))


async def reports(connection: AsyncConnection, adapter_id: str, limit: int) -> list[Report]:
    """The latest first."""
    query = (
        select(EVALUATION_REPORTS)
        .where(EVALUATION_REPORTS.c.adapter_id == adapter_id)
        .order_by(EVALUATION_REPORTS.c.row_id.desc())
        .limit(limit)
    )
    rows: Sequence[Row[Any]] = (await connection.execute(query)).all()
    return [msgspec.convert({name: getattr(row, name) for name in Report.__struct_fields__}, Report) for row in rows]


def _summary(row: Row[Any]) -> SetSummary:
    return SetSummary(
        set_id=row.set_id,
        tenant_id=row.tenant_id,
        adapter_id=row.adapter_id,
        cases=len(row.cases),
        minimum_score=row.policy["minimum_score"],
        epsilon=row.policy["epsilon"],
        created_at_s=row.created_at_s,
    )
