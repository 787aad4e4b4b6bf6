"""What placement wants this replica to hold, put together from shards that arrive in any order."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.messages.desired import AssignedAdapter, AssignmentShard
from shared.messages.identity import AdapterKey


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch` is the newest fencing epoch seen; `shards` how many parts its writer spoke of."""

    epoch: int = 0
    shards: int = 0
    parts: Mapping[int, tuple[AssignedAdapter, ...]] = {}
    reason: str = "nothing assigned yet"

    def wanted(self) -> dict[AdapterKey, AssignedAdapter]:
        """Every assigned adapter, the hotter first, and of those alike the ones for higher tiers."""
        named = [each for index in sorted(self.parts) for each in self.parts[index]]
        named.sort(key=lambda each: (-each.heat, _ORDER.get(each.tier, len(_ORDER))))
        return {AdapterKey(adapter_id=each.adapter_id, digest=each.digest): each for each in named}


_ORDER = {"gpu": 0, "ram": 1, "disk": 2}


def fold(assignment: Assignment, shard: AssignmentShard) -> Assignment:
    """The assignment after one more shard; `reason` says what became of it.

    A shard of an older epoch was written by a placement that has been replaced: it is ignored. Parts
    with an index at or above the newest `shards` are left over from a larger assignment.
    """
    if shard.epoch < assignment.epoch:
        return msgspec.structs.replace(
            assignment, reason=f"ignored a shard of epoch {shard.epoch}: epoch {assignment.epoch} has spoken"
        )
    if shard.shard >= shard.shards:
        return msgspec.structs.replace(
            assignment, reason=f"ignored shard {shard.shard} of {shard.shards}: it is left over"
        )
    parts = {index: part for index, part in assignment.parts.items() if index < shard.shards}
    parts[shard.shard] = shard.adapters
    return Assignment(
        epoch=shard.epoch,
        shards=shard.shards,
        parts=parts,
        reason=f"shard {shard.shard} of {shard.shards} in epoch {shard.epoch}: {len(shard.adapters)} adapters",
    )


def without(assignment: Assignment, shard: int) -> Assignment:
    """The assignment after the key of one shard was deleted."""
    parts = {index: part for index, part in assignment.parts.items() if index != shard}
    return msgspec.structs.replace(assignment, parts=parts, reason=f"shard {shard} was deleted")
