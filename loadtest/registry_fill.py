"""A registry's database as it is after a month of a large fleet, made by the database itself in a few statements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Boolean, Column, Float, Integer, String, Table, Text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.migration_tables import MIGRATION_ITEMS, MIGRATIONS
from services.registry.io.tables import (
    ADAPTER_STATES,
    ADAPTERS,
    ALIAS_HISTORY,
    ALIASES,
    API_KEYS,
    BASE_MODELS,
    EVALUATIONS,
    OUTBOX,
    TENANTS,
)
from services.registry.io.usage_tables import ADAPTER_STATS, TENANT_USAGE, USAGE

BEGAN_S = 1_780_000_000.0
"""When the first request was made, seconds since 1970: a start of a window of usage, as is BEGAN_S + MONTH_S."""
MONTH_S = 30 * 86_400.0
BASE_HASHES = ("b" * 64, "c" * 64)
RANK_CLASS = 16
_MANY = 100_000
_SPREAD = 100_003
"""A prime: the multiples of another one visit all its remainders in an order that looks random."""


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """So many adapters, an alias for nearly each, of a quarter as many tenants; each was called `usage` ÷ `adapters`
    times on average, the busiest far more often. A few are still settling, a few retired; a few aliases are split or
    guarded."""

    adapters: int
    usage: int

    @property
    def tenants(self) -> int:
        return max(self.adapters // 4, 1)


_DIALECTS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {
        "numbers": "generate_series(0::bigint, {count} - 1) AS g(i)",
        "name": "lpad(({0})::text, 6, '0')",
        "hex": "md5(({0})::text)",
        "minute": "floor(at_s / 60) * 60",
        "day": "floor(at_s / 86400)::integer",
    },
    "sqlite": {
        "numbers": "(WITH RECURSIVE g(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM g WHERE i < {count} - 1)"
        " SELECT i FROM g)",
        "name": "printf('%06d', {0})",
        "hex": "lower(hex(randomblob(16)))",
        "minute": "CAST(at_s / 60 AS INTEGER) * 60",
        "day": "CAST(at_s / 86400 AS INTEGER)",
    },
}


class Filling:
    """Into empty tables, through one connection that may write."""

    def __init__(self, connection: AsyncConnection, volume: Volume) -> None:
        self._connection = connection
        self._volume = volume
        self._words = _DIALECTS[connection.dialect.name]

    async def everything(self) -> None:
        await self._customers()
        await self._adapters()
        await self._usage()
        await self._sums()
        await self._connection.exec_driver_sql("ANALYZE")

    async def _customers(self) -> None:
        for number, base_model_hash in enumerate(BASE_HASHES):
            await self._insert(BASE_MODELS, 1, {
                "base_model_hash": f"'{base_model_hash}'", "name": f"'base-{number}'", "layers": "32",
                "modules": "'{}'", "rank_classes": f"'[{RANK_CLASS}]'", "max_context_tokens": "8192",
            })  # fmt: skip
        tenants = self._volume.tenants
        await self._insert(TENANTS, tenants, {"tenant_id": self._tenant("i"), "weight": "1.0"})
        await self._insert(API_KEYS, self._volume.adapters, {
            "key_id": f"substr({self._hex('i')}, 1, 16)", "key_hash": f"{self._hex('i')} || {self._hex('-i - 1')}",
            "tenant_id": self._tenant(f"i % {tenants}"),
        })  # fmt: skip

    async def _adapters(self) -> None:
        volume, when = self._volume, f"{BEGAN_S} + i"
        status = "CASE WHEN i % 100 = 7 THEN 'retired' WHEN i % 1000 = 13 THEN 'evaluating' ELSE 'active' END"
        await self._insert(ADAPTERS, volume.adapters, {
            "adapter_id": self._adapter("i"), "tenant_id": self._tenant(f"i % {volume.tenants}"), "version": "'1'",
            "base_model_hash": f"'{BASE_HASHES[0]}'", "rank": f"{RANK_CLASS}", "alpha": "32.0",
            "target_modules": "'[\"q_proj\",\"v_proj\"]'", "rank_pattern": "'{}'", "alpha_pattern": "'{}'",
            "status": status, "registered_at_s": when, "updated_at_s": when, "size_bytes": "84000000",
            "pool_id": f"'{_pool()}'", "checksum": f"{self._hex('i')} || {self._hex('-i - 1')}", "defects": "'[]'",
        })  # fmt: skip
        await self._insert(ADAPTER_STATES, 4 * volume.adapters, {
            "adapter_id": self._adapter("i / 4"), "at_s": when,
            "state": "CASE i % 4 WHEN 0 THEN 'registered' WHEN 1 THEN 'verified' WHEN 2 THEN 'evaluating' "
            "ELSE 'active' END",
        })  # fmt: skip
        await self._insert(MIGRATIONS, 2, {"migration_id": "'move-' || i", "state": "'done'"})
        await self._insert(MIGRATION_ITEMS, 2 * volume.adapters, {
            "migration_id": "'move-' || (i % 2)", "adapter_id": self._adapter("i / 2"), "state": "'moved'",
        })  # fmt: skip
        await self._insert(EVALUATIONS, volume.adapters, {"adapter_id": self._adapter("i"), "at_s": when})
        alias = {
            "alias": self._alias("i"), "tenant_id": self._tenant(f"i % {volume.tenants}"),
            "adapter_id": self._adapter("i"),
        }  # fmt: skip
        await self._insert(ALIASES, volume.adapters, alias, "i % 100 <> 7 AND i % 1000 <> 13")
        await self._say(
            f"UPDATE {ALIASES.name} SET split_adapter_id = adapter_id, guard = '{{}}' WHERE alias LIKE '%001'"
        )
        history = {"alias": self._alias("i / 3"), "adapter_id": self._adapter("i / 3")}
        await self._insert(ALIAS_HISTORY, 3 * volume.adapters, {**history, "revision": "1 + i % 3", "at_s": when})
        await self._insert(OUTBOX, 4 * volume.adapters, {
            "message_id": self._hex("i"), "channel": "'adapter.verified'", "ids": "'[]'", "payload": "'{}'",
            "created_at_s": when, "published_at_s": when,
        })  # fmt: skip

    async def _usage(self) -> None:
        volume = self._volume
        # The cube of an evenly spread number: a few adapters get most of the requests, and none gets none.
        spread = f"(i * 7919 % {_SPREAD})"
        busy = f"({spread} * {spread} / {_SPREAD} * {spread} / {_SPREAD} * {volume.adapters} / {_SPREAD})"
        # Many rows at a time are sorted into an index faster than one by one.
        indexes = USAGE.indexes if volume.usage > _MANY else ()
        for index in indexes:
            await self._connection.run_sync(index.drop)
        await self._insert(USAGE, volume.usage, {
            "call_id": self._hex("i"), "request_id": "'req-' || i", "key_id": "'key'",
            "tenant_id": self._tenant(f"{busy} % {volume.tenants}"), "alias": self._alias(busy),
            "adapter_id": self._adapter(busy), "pool_id": f"'{_pool()}'",
            "replica_id": "'replica-' || (i % 40)", "gateway_id": "'gateway-0'", "tier": "'gpu'", "attempts": "1",
            "prompt_tokens": "750", "completion_tokens": "1 + i % 500", "ttft_ms": "50.0 + i * 31 % 400",
            "duration_ms": "2500.0", "at_s": f"{BEGAN_S} + i * {MONTH_S / max(volume.usage, 1)!r}",
            "outcome": "CASE WHEN i % 500 = 3 THEN 'replica_lost' ELSE 'stop' END",
        })  # fmt: skip
        for index in indexes:
            await self._connection.run_sync(index.create)

    async def _sums(self) -> None:
        """As the registry sums up what comes in."""
        minute, day = self._words["minute"], self._words["day"]
        await self._say(
            f"INSERT INTO {ADAPTER_STATS.name} (adapter_id, window_start, pool_id, requests, errors, tokens, gpu_hits)"
            f" SELECT adapter_id, {minute}, min(pool_id), count(*), 0, sum(completion_tokens), count(*)"
            f" FROM {USAGE.name} GROUP BY adapter_id, {minute}"
        )
        await self._say(
            f"INSERT INTO {TENANT_USAGE.name} (tenant_id, day, requests, prompt_tokens, completion_tokens)"
            f" SELECT tenant_id, {day}, count(*), sum(prompt_tokens), sum(completion_tokens)"
            f" FROM {USAGE.name} GROUP BY tenant_id, {day}"
        )

    async def _insert(self, table: Table, count: int, said: Mapping[str, str], where: str = "1 = 1") -> None:
        """`count` rows, each of a number `i`; what is not said is empty."""
        values = {column.name: said.get(column.name) or _empty(column) for column in table.columns}
        kept = {name: value for name, value in values.items() if value is not None}
        numbers = self._words["numbers"].format(count=count)
        columns, rows = ", ".join(kept), f"{', '.join(kept.values())} FROM {numbers} WHERE {where}"
        await self._say(f"INSERT INTO {table.name} ({columns}) SELECT {rows}")

    async def _say(self, statement: str) -> None:
        await self._connection.exec_driver_sql(statement)

    def _tenant(self, number: str) -> str:
        return f"'tenant-' || {self._words['name'].format(number)}"

    def _adapter(self, number: str) -> str:
        return f"'adapter-' || {self._words['name'].format(number)}"

    def _alias(self, number: str) -> str:
        return f"'tenant/' || {self._words['name'].format(number)}"

    def _hex(self, number: str) -> str:
        return self._words["hex"].format(number)


def _pool() -> str:
    return f"{BASE_HASHES[0][:12]}-r{RANK_CLASS}"


def _empty(column: Column[Any]) -> str | None:
    """What a column that has to have a value holds if nothing is said of it; None: it is left out."""
    if column.nullable or column.server_default is not None or column.autoincrement is True:
        return None
    for kind, value in ((Boolean, "false"), (Integer, "0"), (Float, "0.0"), ((String, Text), "''")):
        if isinstance(column.type, kind):
            return value
    return "'[]'"
