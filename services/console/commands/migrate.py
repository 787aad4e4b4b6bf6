"""`lorafleet migrate …`: to another base model, alias by alias."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from services.console.commands.output import Output
from services.console.core.migrating import (
    Unclear,
    base_meant,
    migration_meant,
    quietest_first,
    shown_item,
    shown_row,
    told_plan,
    told_progress,
)
from services.console.core.outcome import REFUSED, USAGE
from services.console.io.admin import Admin, CommandFailed

_ROOT = "/internal/migrations"
_PLAN_COLUMNS = (
    "adapter_id", "tenant_id", "aliases", "requests_per_day", "owners", "dataset_uri", "action", "reason", "gpu_hours",
    "usd",
)  # fmt: skip
_ITEM_COLUMNS = ("adapter_id", "tenant_id", "state", "aliases", "successor_id", "updated_at_s", "reason")
_COLUMNS = ("migration_id", "state", "from_base_model_hash", "to_base_model_hash", "created_at_s", "actor", "reason")

Command = Callable[[argparse.Namespace, Admin, Output], None]


def plan(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    params = {
        "from": _base(admin, arguments.origin), "to": _base(admin, arguments.target),
        "gpu_hours": str(arguments.gpu_hours), "usd_per_gpu_hour": str(arguments.usd_per_gpu_hour),
    }  # fmt: skip
    totals: dict[str, Any] = admin.get(f"{_ROOT}/plan", **params, limit="1")["totals"]
    rows = admin.every(f"{_ROOT}/plan", "rows", **params)
    if arguments.json:
        out.record({"rows": rows, "totals": totals}, "")
        return
    out.rows([shown_row(row) for row in rows], _PLAN_COLUMNS)
    out.text(f"\n{told_plan(totals)}\n")


def start(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    body = {
        "from_base_model_hash": _base(admin, arguments.origin), "to_base_model_hash": _base(admin, arguments.target),
        "gpu_hours": arguments.gpu_hours, "usd_per_gpu_hour": arguments.usd_per_gpu_hour, **_signed(arguments),
    }  # fmt: skip
    answer, created = admin.create(_ROOT, body)
    story = "is started" if created else f"is under way already ({answer['state']})"
    out.record(answer, f"migration {answer['migration_id']} {story}")


def listing(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    out.rows(admin.get(_ROOT)["migrations"], _COLUMNS)


def status(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """The headline, and every adapter's state with its reason."""
    path = _path(admin, arguments, ended=True)
    answer = admin.get(path)
    params = {"state": arguments.state} if arguments.state else {}
    items = admin.every(f"{path}/items", "items", **params)
    if arguments.json:
        out.record({**answer, "items": items}, "")
        return
    out.text(f"{told_progress(answer)}\n\n")
    out.rows([shown_item(item) for item in items], _ITEM_COLUMNS)


def turning(change: str, became: str) -> Command:
    """The command that holds, resumes or cancels."""

    def turn(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
        answer = admin.post(f"{_path(admin, arguments)}/{change}", _signed(arguments))
        out.record(answer, f"migration {answer['migration_id']} {became}")

    return turn


def cut_over(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """One alias after the other: what was interrupted goes on with the same command."""
    path = _path(admin, arguments)
    aliases = arguments.alias
    if arguments.all or arguments.next:
        ready = quietest_first(admin.every(f"{path}/items", "items", state="trained"))
        aliases = ready[: arguments.next] if arguments.next else ready
        if not ready:
            out.record([], "No alias is ready to be cut over: `lorafleet migrate status` shows what is missing.")
            return
    elif not aliases:
        raise CommandFailed("Name an alias, or say --next N or --all.", USAGE)
    body = {**_signed(arguments), "force": arguments.force}
    _each(arguments, aliases, lambda alias: _moved(admin.post(f"{path}/cutover", {**body, "alias": alias})), out)


def roll_back(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.post(f"{_path(admin, arguments)}/rollback", {**_signed(arguments), "alias": arguments.alias})
    out.record(*_moved(answer))


def retry(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """Ask pipelines once more for what has failed."""
    path = _path(admin, arguments)
    adapters = arguments.adapter_id
    if arguments.failed:
        adapters = [item["adapter_id"] for item in admin.every(f"{path}/items", "items", state="failed")]
    elif not adapters:
        raise CommandFailed("Name an adapter, or say --failed.", USAGE)

    def ask(adapter_id: str) -> tuple[Any, str]:
        answer = admin.post(f"{path}/retry", {**_signed(arguments), "adapter_id": adapter_id})
        return answer, f"{adapter_id} is {answer['state']}"

    _each(arguments, adapters, ask, out)


def finish(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """Retire the old base and its adapters; many of them take several calls."""
    path = _path(admin, arguments)
    while (answer := admin.post(f"{path}/finish", _signed(arguments)))["left"]:
        out.remark(f"{answer['left']} adapters are still to be retired")
    out.record(answer, f"migration {answer['migration_id']} is finished: the old base is retired")


def _each(arguments: argparse.Namespace, names: list[str], do: Callable[[str], tuple[Any, str]], out: Output) -> None:
    """All of them, whatever becomes of one. Raises CommandFailed at the end if any was refused."""
    answers: list[Any] = []
    refused = 0
    for name in names:
        try:
            answer, sentence = do(name)
        except CommandFailed as error:
            if error.code != REFUSED:
                raise
            answer, sentence, refused = error.answer, f"{name}: {error}", refused + 1
        answers.append(answer)
        if not arguments.json:
            out.record(answer, sentence)
    if arguments.json:
        out.record(answers, "")
    if refused:
        raise CommandFailed(f"{refused} of {len(names)} were refused.", REFUSED)


def _moved(answer: dict[str, Any]) -> tuple[Any, str]:
    story = f"before: {answer['previous_adapter_id']}" if answer["changed"] else "as before"
    return answer, f"{answer['alias']} -> {answer['adapter_id']} ({story})"


def _signed(arguments: argparse.Namespace) -> dict[str, Any]:
    said = {"by": arguments.by, "reason": arguments.reason}
    return {name: value for name, value in said.items() if value}


def _path(admin: Admin, arguments: argparse.Namespace, *, ended: bool = False) -> str:
    known = [] if arguments.migration else admin.get(_ROOT)["migrations"]
    try:
        return f"{_ROOT}/{quote(migration_meant(known, arguments.migration, ended=ended), safe='')}"
    except Unclear as error:
        raise CommandFailed(str(error), USAGE) from error


def _base(admin: Admin, text: str) -> str:
    try:
        return base_meant(admin.every("/internal/base-models", "base_models"), text)
    except Unclear as error:
        raise CommandFailed(str(error), USAGE) from error
