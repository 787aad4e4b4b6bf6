"""`lorafleet limits …`: how much tenants and keys may ask for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from services.console.commands.output import Output
from services.console.core.outcome import USAGE
from services.console.io.admin import Admin, CommandFailed

NAMES = ("requests_per_min", "tokens_per_min", "streams")


def show(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = _of_tenant(arguments.tenant, admin)
    own = {"of": f"tenant {answer['tenant_id']}", **answer["limits"]}
    keys = [{"of": f"key {key['key_id']}", **key["limits"]} for key in answer["keys"]]
    out.either(answer, [own, *keys], ("of", *NAMES))


def put(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    given = {name: getattr(arguments, name) for name in NAMES if getattr(arguments, name) is not None}
    if not given:
        raise CommandFailed("Say which limit: --requests-per-min, --tokens-per-min or --streams.", USAGE)
    change = {name: None if value == "none" else value for name, value in given.items()}
    if arguments.key is None:
        answer = admin.patch(f"/internal/tenants/{quote(arguments.tenant, safe='')}/limits", change)
        out.record(answer, f"tenant {arguments.tenant}: {told(answer['limits'])}")
        return
    if arguments.key not in {key["key_id"] for key in _of_tenant(arguments.tenant, admin)["keys"]}:
        raise CommandFailed(f"Tenant {arguments.tenant} has no key {arguments.key}.", USAGE)
    answer = admin.patch(f"/internal/keys/{quote(arguments.key, safe='')}/limits", change)
    out.record(answer, f"key {arguments.key}: {told(answer['limits'])}")


def told(limits: Mapping[str, Any]) -> str:
    """All three in words."""
    words = {"requests_per_min": "requests a minute", "tokens_per_min": "tokens a minute", "streams": "streams"}
    return ", ".join(f"{'any number of' if limits[name] is None else limits[name]} {words[name]}" for name in NAMES)


def _of_tenant(tenant: str, admin: Admin) -> Any:
    return admin.get(f"/internal/tenants/{quote(tenant, safe='')}/limits")
