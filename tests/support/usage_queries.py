"""Every query on usage that runs while the fleet serves, with likely arguments: none of them may read a whole table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Executable

from services.registry.io import usage_ledger, usage_rows, usage_sums
from services.registry.io.usage_rows import UsageFilter
from services.registry.io.usage_sums import TotalsFilter, WindowsFilter

_NOW_S = 1_764_000_000.0
_HOUR_AGO_S = _NOW_S - 3_600.0
_PLACE = (_NOW_S - 60.0, "c1")


def _listed(**changes: Any) -> Executable:
    return usage_rows.listed_query(UsageFilter(since_s=_HOUR_AGO_S, **changes))


def _totals(by: str) -> Executable:
    return usage_sums.totals_query(TotalsFilter(by=by, since_s=_HOUR_AGO_S, until_s=_NOW_S, after="m"))


QUERIES: Mapping[str, Executable] = {
    "list all": _listed(),
    "list all, next page": _listed(before=_PLACE),
    "list an adapter's": _listed(adapter_id="v1"),
    "list an adapter's, next page": _listed(adapter_id="v1", before=_PLACE),
    "list a tenant's": _listed(tenant_id="acme", before=_PLACE),
    "list an alias's": _listed(alias="acme/support:prod", before=_PLACE),
    "recent": usage_rows.recent_query("v1", _HOUR_AGO_S),
    "recent TTFT": usage_rows.ttft_query("v1", _HOUR_AGO_S, 9),
    "rates": usage_rows.rates_query(["v1", "v2"], _HOUR_AGO_S),
    "traffic": usage_rows.counted_query(_HOUR_AGO_S),
    "totals by tenant": _totals("tenant"),
    "totals by adapter": _totals("adapter"),
    "totals by alias": _totals("alias"),
    "an adapter's minutes": usage_sums.windows_query(
        WindowsFilter(adapter_id="v1", since_s=_HOUR_AGO_S, before_s=_NOW_S)
    ),
    "a tenant's day, twice": usage_sums.both_query("acme", 20_000),
    "prune records": usage_ledger.prune_query(_HOUR_AGO_S, 5_000),
    "prune a window": usage_ledger.prune_window_query(_HOUR_AGO_S),
}
