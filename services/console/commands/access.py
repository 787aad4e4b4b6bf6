"""`lorafleet alias …`, `keys …`, `tenants …`: who may call what, and what it means."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from services.console.commands.output import Output
from services.console.io.admin import Admin

_ALIAS_COLUMNS = ("alias", "tenant_id", "adapter_id", "previous_adapter_id", "updated_at_s")
_KEY_COLUMNS = ("key_id", "tenant_id", "may_call_base", "created_at_s")


def alias_set(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    body = {"adapter_id": arguments.adapter_id}
    if arguments.expect is not None:
        body["expected_adapter_id"] = arguments.expect
    answer = admin.put(_alias_path(arguments.alias), body)
    before = answer.get("previous_adapter_id")
    story = f"before: {before}" if before else "a new alias: it has meant nothing else"
    out.record(answer, f"{arguments.alias} -> {answer['adapter_id']} ({story})")


def alias_rollback(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.post(f"{_alias_path(arguments.alias)}/rollback")
    out.record(answer, f"{arguments.alias} -> {answer['adapter_id']}")


def alias_list(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    out.rows(admin.get("/internal/aliases")["aliases"], _ALIAS_COLUMNS)


def key_create(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    body = {"tenant_id": arguments.tenant, "may_call_base": arguments.base}
    answer = admin.post("/internal/keys", body)
    out.record(answer, answer["api_key"])
    out.remark(f"(key id {answer['key_id']}; the key is not shown again)")


def key_list(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    out.rows(admin.get("/internal/keys")["keys"], _KEY_COLUMNS)


def key_revoke(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.delete(f"/internal/keys/{quote(arguments.key_id, safe='')}")
    out.record(answer or {"key_id": arguments.key_id}, f"{arguments.key_id} is revoked")


def tenant_create(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    body = {"tenant_id": arguments.tenant, "weight": arguments.weight}
    answer, created = admin.create("/internal/tenants", body)
    story = "is created" if created else f"exists already; its weight is {answer['weight']} now"
    out.record(answer, f"tenant {arguments.tenant} {story}")


def tenant_list(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    out.rows(admin.get("/internal/tenants")["tenants"], ("tenant_id", "weight"))


def _alias_path(alias: str) -> str:
    return f"/internal/aliases/{quote(alias, safe='/:')}"
