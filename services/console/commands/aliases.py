"""`lorafleet alias …`: deploy to all or some sessions, go back, and see who did what."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from services.console.commands.output import Output
from services.console.io.admin import Admin

_COLUMNS = ("alias", "adapter_id", "previous_adapter_id", "split", "guarded", "revision", "updated_at_s")
_PAST_COLUMNS = ("changed_at_s", "revision", "change", "adapter_id", "split", "actor", "reason")
_GUARD_TERMS = ("max_error_rate", "max_ttft_p95_ms", "minimum_requests", "window_s", "hold_s")


def deploy(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    body = {"adapter_id": arguments.adapter_id, **_said(arguments), **_guard(arguments)}
    answer = admin.put(_path(arguments.alias), body)
    before = answer.get("previous_adapter_id")
    story = f"before: {before}" if before else "a new alias: it has meant nothing else"
    out.record(answer, f"{arguments.alias} -> {answer['adapter_id']} ({story})")


def roll_back(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    _tell(arguments, admin.post(f"{_path(arguments.alias)}/rollback", _said(arguments)), out)


def split(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    body = {"adapter_id": arguments.adapter_id, "percent": arguments.percent, **_said(arguments), **_guard(arguments)}
    _tell(arguments, admin.put(f"{_path(arguments.alias)}/split", body), out)


def promote(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    _tell(arguments, admin.post(f"{_path(arguments.alias)}/promote", {**_said(arguments), **_guard(arguments)}), out)


def unsplit(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    _tell(arguments, admin.delete(f"{_path(arguments.alias)}/split?{_query(arguments)}"), out)


def remove(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.delete(f"{_path(arguments.alias)}?{_query(arguments)}")
    out.record(answer, f"{arguments.alias} means nothing any more (before: {answer['adapter_id']})")


def listing(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    params = {} if arguments.tenant is None else {"tenant_id": arguments.tenant}
    rows = _pages(admin, "/internal/aliases", "aliases", params)
    out.rows([row if arguments.json else _shown(row) for row in rows], _COLUMNS)


def history(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """The newest first."""
    rows = _pages(admin, f"{_path(arguments.alias)}/history", "history", {})
    out.rows([row if arguments.json else {**_shown(row), "changed_at_s": row["at_s"]} for row in rows], _PAST_COLUMNS)


def _pages(admin: Admin, path: str, name: str, params: dict[str, str]) -> Iterator[dict[str, Any]]:
    while True:
        page = admin.get(path, **params)
        yield from page[name]
        if page.get("next") is None:
            return
        params = {**params, "after": page["next"]}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """The split as a person reads it."""
    return {**row, "split": _split(row), "guarded": row.get("guard") is not None}


def _split(row: dict[str, Any]) -> str:
    other = row.get("split_adapter_id")
    return f"{row['split_percent']:g} % {other}" if other else ""


def _tell(arguments: argparse.Namespace, answer: dict[str, Any], out: Output) -> None:
    shared = _split(answer)
    out.record(answer, f"{arguments.alias} -> {answer['adapter_id']}{f', {shared}' if shared else ''}")


def _said(arguments: argparse.Namespace) -> dict[str, Any]:
    """By whom, why and on which condition."""
    said = {"by": arguments.by, "reason": arguments.reason}
    if getattr(arguments, "force", False):
        said["force"] = True
    if getattr(arguments, "expect", None) is not None:
        said["expected_adapter_id"] = arguments.expect
    return said


def _guard(arguments: argparse.Namespace) -> dict[str, Any]:
    """A term without a condition is sent as well: the registry says what is missing."""
    said = {name: getattr(arguments, name) for name in _GUARD_TERMS if getattr(arguments, name) is not None}
    if arguments.probe:
        said["probe"] = True
    return {"guard": said} if said else {}


def _query(arguments: argparse.Namespace) -> str:
    said = {"by": arguments.by, "reason": arguments.reason}
    return urlencode({**said, "force": "true"} if getattr(arguments, "force", False) else said)


def _path(alias: str) -> str:
    return f"/internal/aliases/{quote(alias, safe='/:')}"
