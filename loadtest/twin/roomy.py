"""What `converge` wants of an assignment for all of which there is room."""

from __future__ import annotations

from collections.abc import Mapping

from services.replica_worker.core.converge import Limits, Plan
from shared.messages.desired import AdapterRecord, AssignedAdapter
from shared.messages.identity import AdapterKey


def room_for_all(
    wanted: Mapping[AdapterKey, AssignedAdapter], records: Mapping[AdapterKey, AdapterRecord], limits: Limits
) -> Plan | None:
    """A plan without actions; None if RAM or disk is too small for some, or one has no record yet."""
    known = [records[key].size_bytes for key in wanted if key in records]
    room_bytes = min(limits.ram_budget_bytes, limits.disk_budget_bytes)
    if len(known) < len(wanted) or sum(known) > room_bytes:
        return None
    return Plan(
        actions=(),
        wanted_ram=frozenset(key for key, each in wanted.items() if each.tier in ("gpu", "ram")),
        wanted_disk=frozenset(key.digest for key in wanted),
        left_out=0,
        reason="all that is assigned has room",
    )
