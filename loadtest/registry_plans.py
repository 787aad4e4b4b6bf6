"""How a database would answer a statement: by an index, or by reading or sorting a table that may be large."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.schema import METADATA

LARGE = frozenset({
    "adapters", "adapter_states", "adapter_stats", "alias_history", "aliases", "api_keys", "evaluation_reports",
    "evaluations", "migration_items", "outbox", "tenants", "tenant_usage", "usage",
})  # fmt: skip
"""Tables that grow with adapters, customers or requests."""
FEW_ROWS = 1000
"""More than a page or an adapter has."""
_SHARE = 0.25
"""Of a table's rows: who sorts more of them sorts the table."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`steps` in the database's words; `faults`: what grows with a table that is large."""

    steps: tuple[str, ...]
    faults: tuple[str, ...]


async def sizes_of(connection: AsyncConnection) -> dict[str, int]:
    """Rows of every table."""
    return {
        table.name: (await connection.execute(select(func.count()).select_from(table))).scalar_one()
        for table in METADATA.sorted_tables
    }


async def plan_of(connection: AsyncConnection, statement: str, parameters: Any, sizes: Mapping[str, int]) -> Plan:
    """Of a statement as the driver gets it. PostgreSQL executes what only reads, to count what it throws away."""
    if connection.dialect.name == "sqlite":
        rows = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        return judge_sqlite(tuple(row[3] for row in rows), statement)
    how = "ANALYZE, FORMAT JSON" if statement.startswith("SELECT") else "FORMAT JSON"
    told = (await connection.exec_driver_sql(f"EXPLAIN ({how}) {statement}", parameters)).scalar_one()
    [root] = json.loads(told) if isinstance(told, str) else told
    return judge_postgresql(root["Plan"], sizes)


def judge_sqlite(steps: tuple[str, ...], statement: str) -> Plan:
    """`SCAN table` reads all of it, `SEARCH table USING INDEX` what is asked for, unless it only begins where a page
    does and then looks for what is equal to something. Walking an index is right for a page in its order."""
    limited, narrowed = " LIMIT " in statement, _NARROWED.search(statement) is not None
    sorts = any("TEMP B-TREE" in step for step in steps)
    faults = []
    for step in steps:
        words = step.split()
        if words[1] not in LARGE:
            continue
        if words[0] == "SEARCH" and narrowed and "=?" not in step:
            faults.append(f"{step}, and throws most of it away")
        if words[0] != "SCAN":
            continue
        by_index = words[-1] if "INDEX" in words else None
        if by_index in _PARTIAL or (by_index is not None and limited and not sorts):
            continue
        faults.append(f"{step}{', then sorts it' if sorts else ''}")
    return Plan(steps=steps, faults=tuple(faults))


def judge_postgresql(root: Mapping[str, Any], sizes: Mapping[str, int]) -> Plan:
    """A sort of a page, of an adapter's rows or of an hour is none of a table."""
    nodes = list(_nodes(root, limited=False))
    return Plan(
        steps=tuple(_step(node) for node, _ in nodes),
        faults=tuple(fault for node, limited in nodes if (fault := _fault(node, limited, sizes))),
    )


def _nodes(node: Mapping[str, Any], limited: bool) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Each with whether whoever is above it stops early: a sort or a sum in between reads everything first."""
    yield node, limited
    kind = node["Node Type"]
    below = kind == "Limit" or (limited and kind not in ("Sort", "Aggregate", "Hash", "Materialize"))
    for child in node.get("Plans", ()):
        yield from _nodes(child, below)


def _fault(node: Mapping[str, Any], limited: bool, sizes: Mapping[str, int]) -> str | None:
    kind, table = node["Node Type"], node.get("Relation Name", "")
    if kind == "Sort" and node["Plan Rows"] > max(FEW_ROWS, _SHARE * _largest(node, sizes)):
        return f"sorts {node['Plan Rows']} rows"
    if (thrown_away := node.get("Rows Removed by Filter", 0)) > FEW_ROWS and table in LARGE:
        return f"reads {thrown_away} rows of {table} and throws them away"
    if kind == "Seq Scan" and table in LARGE:
        return f"reads all of {table}"
    by_index = kind in ("Index Scan", "Index Only Scan") and table in LARGE
    if by_index and "Index Cond" not in node and node["Index Name"] not in _PARTIAL:
        return None if limited and "Filter" not in node else f"walks {node['Index Name']} from end to end"
    return None


def _largest(node: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    return max((sizes.get(one.get("Relation Name", ""), 0) for one, _ in _nodes(node, limited=False)), default=0)


def _step(node: Mapping[str, Any]) -> str:
    return " ".join(str(node[name]) for name in ("Node Type", "Index Name", "Relation Name") if name in node)


_NARROWED = re.compile(r" = \?| IN \(\?")
_PARTIAL = frozenset(
    str(index.name)
    for table in METADATA.sorted_tables
    for index in table.indexes
    if index.dialect_options["postgresql"]["where"] is not None
)
"""Indexes of the few rows that need attention: reading one from end to end is what they are for."""
