"""`lorafleet pipelines …`: whose evaluation results are believed."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from services.console.commands.output import Output
from services.console.core.outcome import USAGE
from services.console.io.admin import Admin, CommandFailed
from services.console.io.signing import KeyUnusable, public_key

_COLUMNS = ("key_id", "name", "tenant_id", "public_key")


def add_key(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    try:
        key = public_key(arguments.file)
    except KeyUnusable as error:
        raise CommandFailed(str(error), USAGE) from error
    body = {"name": arguments.name, "public_key": key, "tenant_id": arguments.tenant}
    answer = admin.post("/internal/pipeline-keys", body)
    out.record(answer, f"key {answer['key_id']} may sign for {answer['tenant_id'] or 'every tenant'}")


def listing(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    out.rows(admin.get("/internal/pipeline-keys")["pipeline_keys"], _COLUMNS)


def revoke(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    admin.delete(f"/internal/pipeline-keys/{quote(arguments.key_id, safe='')}")
    out.record({"key_id": arguments.key_id}, f"key {arguments.key_id} is believed no more")
