"""`lorafleet keys …`, `tenants …`: who may call."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from services.console.commands import limits
from services.console.commands.output import Output
from services.console.io.admin import Admin

_KEY_COLUMNS = ("key_id", "tenant_id", "may_call_base", "created_at_s")


def key_create(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    body = {"tenant_id": arguments.tenant, "may_call_base": arguments.base}
    answer = admin.post("/internal/keys", body)
    out.record(answer, answer["api_key"])
    out.remark(f"(key id {answer['key_id']}; the key is not shown again)")


def key_list(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    keys = admin.every("/internal/keys", "keys")
    out.either(keys, [{**key, **key["limits"]} for key in keys], (*_KEY_COLUMNS, *limits.NAMES))


def key_revoke(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.delete(f"/internal/keys/{quote(arguments.key_id, safe='')}")
    out.record(answer or {"key_id": arguments.key_id}, f"{arguments.key_id} is revoked")


def tenant_create(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    share = {} if arguments.weight is None else {"weight": arguments.weight}
    body = {"tenant_id": arguments.tenant, **share}
    answer, created = admin.create("/internal/tenants", body)
    story = "is created" if created else f"exists already; its weight is {answer['weight']}"
    out.record(answer, f"tenant {arguments.tenant} {story}")


def tenant_list(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    tenants = admin.every("/internal/tenants", "tenants")
    rows = [{**tenant, **tenant["limits"]} for tenant in tenants]
    out.either(tenants, rows, ("tenant_id", "weight", *limits.NAMES))
