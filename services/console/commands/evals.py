"""`lorafleet evals …`: evaluation sets, reports, signed results, and a person's word against them."""

from __future__ import annotations

import argparse
import shutil
from typing import Any
from urllib.parse import quote

import msgspec

from services.console.commands.output import Output
from services.console.core.evaluation_view import told
from services.console.core.outcome import USAGE
from services.console.io.admin import Admin, CommandFailed
from services.console.io.signing import KeyUnusable, signed
from shared.messages.results import PipelineResults, signed_bytes

_COLUMNS = ("tenant_id", "adapter_id", "cases", "minimum_score", "epsilon", "set_id")
_WIDTH = 120


def save(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    try:
        raw = arguments.file.read_bytes()
    except OSError as error:
        raise CommandFailed(f"{arguments.file} cannot be read: {error.strerror}.", USAGE) from error
    asked = {
        "tenant_id": arguments.tenant,
        "adapter_id": arguments.adapter,
        "minimum_score": arguments.minimum_score,
        "epsilon": arguments.epsilon,
    }
    said = {name: str(value) for name, value in asked.items() if value is not None}
    answer = admin.post_file("/internal/evaluation-sets", raw, **said)
    for_whom = f"adapter {answer['adapter_id']}" if answer["adapter_id"] else f"tenant {answer['tenant_id']}"
    out.record(answer, f"set {answer['set_id'][:12]} with {answer['cases']} cases holds for {for_whom}")


def listing(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    params = {"tenant_id": arguments.tenant} if arguments.tenant else {}
    out.rows(admin.get("/internal/evaluation-sets", **params)["evaluation_sets"], _COLUMNS)


def show(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.get(_path(arguments.adapter_id, "evaluations"))
    out.record(answer, told(answer, shutil.get_terminal_size((_WIDTH, 24)).columns))


def override(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    body = {"by": arguments.by, "reason": arguments.reason}
    answer = admin.post(_path(arguments.adapter_id, "override"), body)
    out.record(answer, f"{answer['adapter_id']} is {answer['status']}: {answer['reason']}")


def post(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    adapter = admin.get(f"/internal/adapters/{quote(arguments.adapter_id, safe='')}")
    results = PipelineResults(
        score=arguments.score, predecessor_score=arguments.predecessor_score, notes=arguments.notes
    )
    try:
        key_id, signature = signed(arguments.key, signed_bytes(adapter["adapter_id"], adapter["digest"], results))
    except KeyUnusable as error:
        raise CommandFailed(str(error), USAGE) from error
    body: dict[str, Any] = {"results": msgspec.to_builtins(results), "signature": signature, "key_id": key_id}
    answer = admin.post(_path(arguments.adapter_id, "evaluations"), body)
    out.record(answer, f"{answer['adapter_id']} is {answer['status']}: {answer['reason']}")


def _path(adapter_id: str, what: str) -> str:
    return f"/internal/adapters/{quote(adapter_id, safe='')}/{what}"
