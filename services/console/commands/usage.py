"""`lorafleet usage …`: which requests there were, and what they come to."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from services.console.commands.output import Output
from services.console.core.moments import day_name
from services.console.core.outcome import REFUSED
from services.console.io.admin import Admin, CommandFailed
from shared.messages.usage import BASE

PAGE = 1_000
_WINDOW_S = 60.0
_REQUEST_COLUMNS = (
    "ended_at_s", "request_id", "tenant_id", "alias", "adapter_id", "replica_id", "tier", "prompt_tokens",
    "completion_tokens", "ttft_ms", "outcome",
)  # fmt: skip
_TOKENS = ("requests", "prompt_tokens", "completion_tokens")
_TOTAL_COLUMNS = {
    "tenant": _TOKENS,
    "alias": _TOKENS,
    "adapter": ("requests", "completion_tokens", "errors", "gpu_hits"),
}
"""What the registry sums up of each: an adapter's minutes have no prompts, a tenant's days no errors."""
_MINUTE_COLUMNS = ("from_at_s", "requests", "errors", "tokens_per_s", "gpu_hit_percent", "ttft_p50_ms", "ttft_p95_ms")


def listing(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """The newest first; with --json a line each, so that a day of them can be piped."""
    asked = {
        "adapter_id": arguments.adapter, "tenant_id": arguments.tenant, "alias": arguments.alias, **_span(arguments),
    }  # fmt: skip
    rows = _pages(admin, "/internal/usage", "usage", asked, None if arguments.all else arguments.limit)
    if arguments.json:
        for row in rows:
            out.text(json.dumps(row) + "\n")
        return
    out.rows([{**row, "ended_at_s": row["at_s"]} for row in rows], _REQUEST_COLUMNS)


def totals(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    rows = list(_pages(admin, "/internal/usage/totals", "totals", {"by": arguments.by, **_span(arguments)}))
    out.rows([{arguments.by: row["name"], **row} for row in rows], (arguments.by, *_TOTAL_COLUMNS[arguments.by]))


def stats(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """An adapter's minutes, the newest first. Raises CommandFailed if nothing is known of it, no request either."""
    adapter = f"/internal/adapters/{quote(arguments.adapter_id, safe='')}"
    minutes = [{**row, **_figures(row)} for row in _pages(admin, f"{adapter}/stats", "windows", _span(arguments))]
    if not minutes and arguments.adapter_id != BASE:
        admin.get(adapter)
    out.rows(minutes, _MINUTE_COLUMNS)


def reconcile(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """Raises CommandFailed, with every day that differs, if the sums are not those of the records."""
    found = admin.get("/internal/usage/reconcile", tenant_id=arguments.tenant)
    wrong = [_difference(day) for day in found["days"] if day["summed"] != day["recorded"]]
    if wrong:
        lines = "\n".join([f"{arguments.tenant} differs on {len(wrong)} of {len(found['days'])} days:", *wrong])
        raise CommandFailed(lines, REFUSED, found)
    requests, tokens = (sum(day["summed"][name] for day in found["days"]) for name in ("requests", "completion_tokens"))
    since = day_name(found["from_day"])
    out.record(found, f"{arguments.tenant}: OK, {requests} requests with {tokens} completion tokens since {since}")


def _pages(
    admin: Admin, path: str, name: str, asked: dict[str, str | None], most: int | None = None
) -> Iterator[dict[str, Any]]:
    """Every row, or the first `most`."""
    params = {key: value for key, value in asked.items() if value}
    while most is None or most > 0:
        page = admin.get(path, limit=str(PAGE if most is None else min(PAGE, most)), **params)
        yield from page[name]
        if page["next"] is None:
            return
        params["after"] = page["next"]
        most = None if most is None else most - len(page[name])


def _span(arguments: argparse.Namespace) -> dict[str, str | None]:
    """From when to when, as far as it was said."""
    said = {"since_s": arguments.since, "until_s": arguments.until}
    return {name: None if value is None else str(value) for name, value in said.items()}


def _figures(row: dict[str, Any]) -> dict[str, float]:
    return {
        "from_at_s": row["window_start"],
        "tokens_per_s": row["tokens"] / _WINDOW_S,
        "gpu_hit_percent": 100.0 * row["gpu_hits"] / row["requests"],
    }


def _difference(day: dict[str, Any]) -> str:
    sides = ((day[side], name) for side, name in (("summed", "summed up"), ("recorded", "on record")))
    told = " and ".join(f"{of['requests']} requests with {of['completion_tokens']} tokens {name}" for of, name in sides)
    return f"  {day_name(day['day'])}: {told}"
