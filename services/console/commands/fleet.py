"""`lorafleet status` and `chat`: what the fleet holds, and whether it answers."""

from __future__ import annotations

import argparse
from typing import Any

from services.console.commands.output import Output
from services.console.io.admin import Admin
from services.console.io.chat import Door
from shared.messages.pools import is_merged

_REPLICA_COLUMNS = (
    "replica_id", "state", "pool_id", "running", "queue_depth", "tokens_in_flight", "kv", "slots", "gpu", "ram", "disk",
)  # fmt: skip
_TIERS = ("gpu", "ram", "disk")


def status(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """Every replica, then every adapter with the tier it sits in on each replica."""
    view: dict[str, Any] = admin.get("/internal/fleet")
    replicas = [{**replica, "state": _state(replica), "kv": _kv(replica)} for replica in view["replicas"]]
    if arguments.json:
        out.record(view, "")
        return
    out.rows(replicas, _REPLICA_COLUMNS)
    names = [replica["replica_id"] for replica in replicas]
    out.text("\n")
    out.rows(_holdings(replicas), ("adapter_id", *names))


def chat(arguments: argparse.Namespace, door: Door, out: Output) -> None:
    """Stream one answer to the terminal; which adapter answered, and from which tier, with --verbose."""
    body = {"model": arguments.alias, "messages": [{"role": "user", "content": arguments.prompt}]}
    body |= {"temperature": arguments.temperature, "max_tokens": arguments.max_tokens}
    headers: dict[str, str] = {}
    try:
        for headers, delta in door.stream(body):  # noqa: B007  (the last headers are reported below)
            out.text(delta)
    finally:
        if headers:  # an answer that breaks off ends its line, too
            out.text("\n")
    if arguments.verbose:
        names = ("x-adapter-id", "x-adapter-tier", "x-request-id")
        out.remark("\n".join(f"{name}: {headers.get(name, '-')}" for name in names))


def _state(replica: dict[str, Any]) -> str:
    if replica["draining"]:
        return "draining"
    if not replica["ready"]:
        return f"not ready: {replica['reason']}"
    if replica.get("warming"):
        return f"warming, {replica['to_warm']} to come"
    return "ready (merged)" if is_merged(replica["pool_id"]) else "ready"


def _kv(replica: dict[str, Any]) -> str:
    """How full its KV cache is, if it says so."""
    total = replica.get("kv_total_tokens", 0)
    return f"{100 * replica['kv_used_tokens'] / total:.0f} %" if total else ""


def _holdings(replicas: list[dict[str, Any]]) -> list[dict[str, str]]:
    """A row an adapter with its tier on each replica; what sits highest comes first."""
    tiers: dict[str, dict[str, str]] = {}
    for replica in replicas:
        for entry in replica["adapters"]:
            tiers.setdefault(entry["adapter_id"], {})[replica["replica_id"]] = entry["tier"]
    return [{"adapter_id": name, **held} for name, held in sorted(tiers.items(), key=_by_highest_tier)]


def _by_highest_tier(item: tuple[str, dict[str, str]]) -> tuple[int, str]:
    name, held = item
    return min(_TIERS.index(tier) for tier in held.values()), name
