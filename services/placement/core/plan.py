"""Which adapters a replica should hold, and in which tier, inside its own budgets.

Tiers are inclusive, as a load passes through them: what is wanted in a slot also takes RAM, and what is
wanted in RAM also takes disk. What does not even fit on disk is left out of the assignment: the replica
still owns it and fetches it from the store when asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.messages.desired import AdapterRecord, AssignedAdapter, Member
from shared.messages.identity import AdapterKey
from shared.messages.reports import TIERS

PLACED_STATUSES = ("verified", "evaluating", "active")
"""From "verified" on, so that the evaluation meets a warm adapter."""

_TIER_ORDER = {tier: order for order, tier in enumerate(TIERS)}

Held = Mapping[AdapterKey, str]
"""The tier in which one replica holds each adapter now."""


class Share(msgspec.Struct, frozen=True, gc=False):
    """One adapter of one replica; `position` 0 is its first owner. `slot` says whether this owner should keep a slot
    for it; None: nobody cares, and the first owner keeps one that is left over."""

    record: AdapterRecord
    position: int
    heat: int = 0
    slot: bool | None = None

    @property
    def takes_slot(self) -> bool:
        """Only once a gateway may send some traffic."""
        return self.record.status == "active" and (self.position == 0 if self.slot is None else self.slot)


class ReplicaPlan(msgspec.Struct, frozen=True, kw_only=True):
    replica_id: str
    adapters: tuple[AssignedAdapter, ...]
    left_out: int
    reason: str


def is_placed(record: AdapterRecord) -> bool:
    """What nobody wants is placed nowhere: whoever asks for it all the same has it loaded then."""
    return record.status in PLACED_STATUSES and record.wanted


def plan_replica(member: Member, shares: Iterable[Share], held: Held) -> ReplicaPlan:
    """Give the highest tiers to what is active, pinned, hot, already highest here, first-owned and small, in this
    order: keeping what is held means that a full budget never swaps one adapter for another as busy."""
    assigned: list[AssignedAdapter] = []
    counts = dict.fromkeys(TIERS, 0)
    slots, ram_bytes, disk_bytes = member.slots, member.ram_budget_bytes, member.disk_budget_bytes
    for share in sorted(shares, key=lambda share: _precedence(share, held)):
        record, tier = share.record, "remote"
        size_bytes = record.size_bytes
        if size_bytes <= disk_bytes:
            tier = "disk"
            disk_bytes -= size_bytes
            if size_bytes <= ram_bytes:
                tier = "ram"
                ram_bytes -= size_bytes
                if slots and share.takes_slot:
                    tier = "gpu"
                    slots -= 1
            assigned.append(
                AssignedAdapter(
                    adapter_id=record.adapter_id, digest=record.digest, role="owner", tier=tier, heat=share.heat
                )
            )
        counts[tier] += 1
    return ReplicaPlan(
        replica_id=member.replica_id,
        adapters=tuple(assigned),
        left_out=counts["remote"],
        reason=_reason(counts),
    )


def _precedence(share: Share, held: Held) -> tuple[bool, bool, int, int, int, int, str]:
    record = share.record
    return (
        record.status != "active",
        not record.pinned,
        -share.heat,
        _TIER_ORDER[held.get(record.key, "remote")] if held else 0,
        share.position,
        record.size_bytes,
        record.adapter_id,
    )


def _reason(counts: Mapping[str, int]) -> str:
    placed = ", ".join(f"{counts[tier]} {tier}" for tier in TIERS[:-1])
    return f"{placed}; {counts['remote']} beyond the disk budget" if counts["remote"] else placed
