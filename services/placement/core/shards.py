"""Assignments cut into messages that stay below the bus's payload limit and change as little as possible.

One replica fewer rewrites a shard of nearly every other one, and must: what it owned falls to all of them. Of 20,000
adapters with 2 owners on 100 replicas it had 400; each of the 99 others gets about 4, and by chance one in fifty
(e^-4) gets none. All the others have to be told. Larger shards, of several replicas, would be rewritten all the same,
and every reader would get its neighbours' besides; smaller ones, of 50 adapters, would be 8 a replica, of which 3
change: 300 messages for 40 % of the bytes, of which there are 6 MB in all. It is the share that is large, not the
number: on 1,000 replicas 100,000 adapters are 200 each, 0.2 for each of the others, and four of five are left as they
are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from operator import attrgetter

import msgspec

from shared.messages.desired import AdapterRecord, AssignedAdapter, AssignmentShard

SHARD_LIMIT = 2_000

ShardKey = tuple[str, str]
"""Replica id and shard number, as they stand in the key."""


class ShardChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What to write, in this order, and what to delete after that.

    Higher shards come first: when one shard becomes two, the second is there before the first shrinks,
    so that no reader ever sees an adapter missing that only moved.
    """

    puts: tuple[tuple[ShardKey, AssignmentShard], ...]
    deletes: tuple[ShardKey, ...]


def split(
    replica_id: str, pool_id: str, epoch: int, adapters: Iterable[AssignedAdapter], limit: int = SHARD_LIMIT
) -> dict[ShardKey, AssignmentShard]:
    """The shards of one replica; one empty shard if it should hold nothing, which is also a statement.

    An adapter's shard follows from a hash of its id, and the number of shards is a power of two: one more
    adapter rewrites one shard, not every shard behind it.
    """
    placed = sorted(adapters, key=attrgetter("adapter_id"))
    buckets = _buckets(placed, limit)
    return {
        (replica_id, str(number)): AssignmentShard(
            replica_id=replica_id,
            pool_id=pool_id,
            epoch=epoch,
            shard=number,
            shards=len(buckets),
            adapters=tuple(bucket),
        )
        for number, bucket in enumerate(buckets)
    }


def differences(stored: Mapping[ShardKey, AssignmentShard], wanted: Mapping[ShardKey, AssignmentShard]) -> ShardChanges:
    """From what the bus holds to what it should hold."""
    puts = [(key, shard) for key, shard in wanted.items() if not _is_same(stored.get(key), shard)]
    return ShardChanges(
        puts=tuple(sorted(puts, key=lambda put: (put[1].replica_id, -put[1].shard))),
        deletes=tuple(sorted(key for key in stored if key not in wanted)),
    )


def still_held(
    stored: Iterable[AssignmentShard], replica_id: str, records: Mapping[str, AdapterRecord]
) -> list[AssignedAdapter]:
    """What a draining replica keeps: what it was last assigned, less the adapters that are gone from the `records` of
    those that are to be placed.

    Shards of two cuts may stand side by side if placement stopped between two writes: an id counts once.
    """
    held = {
        adapter.adapter_id: adapter
        for shard in stored
        if shard.replica_id == replica_id
        for adapter in shard.adapters
        if adapter.adapter_id in records and records[adapter.adapter_id].digest == adapter.digest
    }
    return list(held.values())


def _is_same(one: AssignmentShard | None, other: AssignmentShard) -> bool:
    """What was written a moment ago is the very same object: nothing need be compared then."""
    return one is other or one == other


def _buckets(adapters: list[AssignedAdapter], limit: int) -> list[list[AssignedAdapter]]:
    if len(adapters) <= limit:
        return [adapters]
    hashed = [(_hash(adapter.adapter_id), adapter) for adapter in adapters]
    count = 2
    while True:
        buckets: list[list[AssignedAdapter]] = [[] for _ in range(count)]
        for value, adapter in hashed:
            buckets[value % count].append(adapter)
        if max(map(len, buckets)) <= limit:
            return buckets
        count *= 2


def _hash(adapter_id: str) -> int:
    # Customers choose the ids, so the spread must not be theirs to choose: no checksum would do.
    return int.from_bytes(hashlib.blake2b(adapter_id.encode(), digest_size=8).digest(), "big")
