"""What a registry asks its database all day, each with other keys every time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from loadtest.registry_fill import BEGAN_S, MONTH_S, Volume
from services.registry.core.usage import day_of
from services.registry.io import (
    adapter_rows,
    alias_rows,
    base_model_rows,
    customer_rows,
    outbox_rows,
    usage_rows,
    usage_sums,
    wanted_rows,
)
from services.registry.io.adapter_rows import AdapterFilter
from services.registry.io.alias_rows import AliasFilter
from services.registry.io.usage_rows import UsageFilter
from services.registry.io.usage_sums import TotalsFilter, WindowsFilter

_PAGE = 1000
_HOUR_S, _DAY_S = 3_600.0, 86_400.0


class Keys:
    """Somebody's keys, drawn anew for every question."""

    def __init__(self, volume: Volume, draws: Random) -> None:
        self._number = draws.randrange(volume.adapters)
        self.tenant_id = f"tenant-{self._number % volume.tenants:06d}"
        self.at_s = BEGAN_S + draws.random() * (MONTH_S - _DAY_S)

    @property
    def adapter_id(self) -> str:
        return f"adapter-{self._number:06d}"

    @property
    def alias(self) -> str:
        return f"tenant/{self._number:06d}"

    def adapter_ids(self, count: int) -> list[str]:
        return [f"adapter-{self._number * at % 20_000:06d}" for at in range(count)]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ask: Callable[[AsyncConnection, Keys], Awaitable[object]]


def _adapters(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return adapter_rows.listed(connection, AdapterFilter(after=keys.adapter_id, limit=_PAGE))


def _adapters_of_tenant(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return adapter_rows.listed(connection, AdapterFilter(tenant_id=keys.tenant_id, limit=_PAGE))


def _adapters_of_status(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return adapter_rows.listed(connection, AdapterFilter(statuses=("evaluating",), limit=_PAGE))


def _aliases(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return alias_rows.listed(connection, AliasFilter(after=keys.alias, limit=_PAGE))


def _aliases_of_tenant(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return alias_rows.listed(connection, AliasFilter(tenant_id=keys.tenant_id, limit=_PAGE))


def _usage_of_adapter(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return usage_rows.listed(connection, UsageFilter(adapter_id=keys.adapter_id, limit=_PAGE))


def _usage_of_adapter_after(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    wanted = UsageFilter(adapter_id=keys.adapter_id, before=(keys.at_s, "8"), limit=_PAGE)
    return usage_rows.listed(connection, wanted)


def _usage_of_tenant(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    wanted = UsageFilter(tenant_id=keys.tenant_id, since_s=keys.at_s, until_s=keys.at_s + _DAY_S, limit=_PAGE)
    return usage_rows.listed(connection, wanted)


def _usage_of_alias(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return usage_rows.listed(connection, UsageFilter(alias=keys.alias, limit=_PAGE))


def _usage_after(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return usage_rows.listed(connection, UsageFilter(before=(keys.at_s, "8"), limit=_PAGE))


def _totals(by: str, span_s: float) -> Callable[[AsyncConnection, Keys], Awaitable[object]]:
    def ask(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
        wanted = TotalsFilter(by=by, since_s=keys.at_s, until_s=keys.at_s + span_s)
        return usage_sums.totals(connection, wanted)

    return ask


def _windows(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    wanted = WindowsFilter(adapter_id=keys.adapter_id, since_s=keys.at_s, before_s=keys.at_s + _DAY_S)
    return usage_sums.windows(connection, wanted)


def _window_ttfts(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return usage_sums.window_ttfts(connection, keys.adapter_id, keys.at_s, keys.at_s + _DAY_S)


def _rates(connection: AsyncConnection, keys: Keys) -> Awaitable[object]:
    return usage_rows.rates(connection, keys.adapter_ids(200), keys.at_s, now_s=keys.at_s + _DAY_S)


QUESTIONS = (
    Question(name="adapter.find", ask=lambda c, k: adapter_rows.find(c, k.adapter_id)),
    Question(name="adapter.history", ask=lambda c, k: adapter_rows.history(c, k.adapter_id)),
    Question(name="adapter.evaluations", ask=lambda c, k: adapter_rows.evaluations(c, k.adapter_id)),
    Question(name="adapters.page", ask=_adapters),
    Question(name="adapters.of_tenant", ask=_adapters_of_tenant),
    Question(name="adapters.of_status", ask=_adapters_of_status),
    Question(name="adapters.run_out", ask=lambda c, k: wanted_rows.run_out(c, k.at_s, _PAGE)),
    Question(name="alias.find", ask=lambda c, k: alias_rows.find(c, k.alias)),
    Question(name="alias.naming", ask=lambda c, k: alias_rows.naming(c, k.adapter_id)),
    Question(name="alias.history", ask=lambda c, k: alias_rows.history(c, k.alias, limit=_PAGE)),
    Question(name="aliases.page", ask=_aliases),
    Question(name="aliases.of_tenant", ask=_aliases_of_tenant),
    Question(name="aliases.guarded", ask=lambda c, k: alias_rows.guarded(c)),
    Question(name="base_models", ask=lambda c, k: base_model_rows.listed(c)),
    Question(name="tenant.exists", ask=lambda c, k: customer_rows.tenant_exists(c, k.tenant_id)),
    Question(name="outbox.pending", ask=lambda c, k: outbox_rows.pending(c, 200)),
    Question(name="outbox.backlog", ask=lambda c, k: outbox_rows.backlog(c)),
    Question(name="usage.of_adapter", ask=_usage_of_adapter),
    Question(name="usage.of_adapter_after", ask=_usage_of_adapter_after),
    Question(name="usage.of_tenant", ask=_usage_of_tenant),
    Question(name="usage.of_alias", ask=_usage_of_alias),
    Question(name="usage.page", ask=_usage_after),
    Question(name="usage.recent", ask=lambda c, k: usage_rows.recent(c, k.adapter_id, k.at_s)),
    Question(name="usage.counted", ask=lambda c, k: usage_rows.counted(c, BEGAN_S + MONTH_S - 600.0)),
    Question(name="usage.rates", ask=_rates),
    Question(name="usage.windows", ask=_windows),
    Question(name="usage.window_ttfts", ask=_window_ttfts),
    Question(name="usage.both", ask=lambda c, k: usage_sums.both(c, k.tenant_id, day_of(k.at_s))),
    Question(name="totals.by_tenant", ask=_totals("tenant", 7 * _DAY_S)),
    Question(name="totals.by_adapter", ask=_totals("adapter", _DAY_S)),
    Question(name="totals.by_alias", ask=_totals("alias", _HOUR_S)),
)
