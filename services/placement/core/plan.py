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
"""Those whose records may be wanted. Of what is verified and in line for its evaluation, only what is pinned is."""

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
    order: keeping what is held means that a full budget never swaps one adapter for another as busy. Where there are
    bytes for everybody, the order decides about slots alone, and is asked for only where those are too few."""
    asked = list(shares)
    everything_bytes = sum([share.record.size_bytes for share in asked])
    if everything_bytes <= min(member.ram_budget_bytes, member.disk_budget_bytes):
        return _plan(member, asked, _in_ram(member, asked, held))
    return _plan(member, asked, _in_order(member, asked, held))


def _in_ram(member: Member, shares: list[Share], held: Held) -> list[str]:
    """The tier of each; all of them fit into RAM."""
    takers = [at for at, share in enumerate(shares) if share.takes_slot]
    if len(takers) > member.slots:
        ranks = _precedences(shares, held)
        takers = sorted(takers, key=ranks.__getitem__)[: member.slots]
    tiers = ["ram"] * len(shares)
    for at in takers:
        tiers[at] = "gpu"
    return tiers


def _in_order(member: Member, shares: list[Share], held: Held) -> list[str]:
    """The tier of each, the first in precedence served first."""
    tiers = ["remote"] * len(shares)
    slots, ram_bytes, disk_bytes = member.slots, member.ram_budget_bytes, member.disk_budget_bytes
    for at in sorted(range(len(shares)), key=_precedences(shares, held).__getitem__):
        size_bytes = shares[at].record.size_bytes
        if size_bytes > disk_bytes:
            continue
        tiers[at] = "disk"
        disk_bytes -= size_bytes
        if size_bytes > ram_bytes:
            continue
        tiers[at] = "ram"
        ram_bytes -= size_bytes
        if slots and shares[at].takes_slot:
            tiers[at] = "gpu"
            slots -= 1
    return tiers


def _plan(member: Member, shares: Iterable[Share], tiers: list[str]) -> ReplicaPlan:
    counts = {tier: tiers.count(tier) for tier in TIERS}
    adapters = tuple(
        AssignedAdapter(
            adapter_id=share.record.adapter_id, digest=share.record.digest, role="owner", tier=tier, heat=share.heat
        )
        for share, tier in zip(shares, tiers, strict=True)
        if tier != "remote"
    )
    return ReplicaPlan(
        replica_id=member.replica_id, adapters=adapters, left_out=counts["remote"], reason=_reason(counts)
    )  # fmt: skip


def _precedences(shares: list[Share], held: Held) -> list[tuple[bool, bool, int, int, int, int, str]]:
    """By which shares are served, the smallest first."""
    tiers = {(key.adapter_id, key.digest): _TIER_ORDER[tier] for key, tier in held.items()}
    nowhere = _TIER_ORDER["remote"]
    return [
        (
            record.status != "active",
            not record.pinned,
            -share.heat,
            tiers.get((record.adapter_id, record.digest), nowhere),
            share.position,
            record.size_bytes,
            record.adapter_id,
        )
        for share in shares
        for record in (share.record,)
    ]


def _reason(counts: Mapping[str, int]) -> str:
    placed = ", ".join(f"{counts[tier]} {tier}" for tier in TIERS[:-1])
    return f"{placed}; {counts['remote']} beyond the disk budget" if counts["remote"] else placed
