"""Plans cut into the assignments that are written, and read back when a placement begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from services.placement.core.catalog import Catalog
from services.placement.core.membership import Standing
from services.placement.core.pool import PoolMemory, Recalled
from services.placement.core.shards import ShardKey, split, still_held
from shared.messages.desired import AssignedAdapter, AssignmentShard

Shards = Mapping[ShardKey, AssignmentShard]


class Before(msgspec.Struct, frozen=True):
    """The plans of the last tick, and the shards that were cut from them."""

    pools: Mapping[str, PoolMemory]
    shards: Shards


class Kept(msgspec.Struct, frozen=True):
    """What one draining replica keeps of what it was assigned."""

    pool_id: str
    adapters: tuple[AssignedAdapter, ...]


def kept_while_draining(standings: Mapping[str, Standing], records: Catalog, stored: Shards) -> dict[str, Kept]:
    """A draining replica keeps what it has, less the adapters that are gone, and gets nothing new."""
    kept = {}
    for name, standing in standings.items():
        if standing.phase == "draining":
            placed = records.pools.get(standing.pool_id, {})
            kept[name] = Kept(standing.pool_id, tuple(still_held(stored.values(), name, placed)))
    return kept


def cut(
    before: Before, pools: Mapping[str, PoolMemory], kept: Mapping[str, Kept], epoch: int
) -> dict[ShardKey, AssignmentShard]:
    """The shards of every replica that owns or drains; those of a plan that has not changed are the same objects."""
    earlier: dict[str, dict[ShardKey, AssignmentShard]] = {}
    for key, shard in before.shards.items():
        earlier.setdefault(key[0], {})[key] = shard
    shards: dict[ShardKey, AssignmentShard] = {}
    for pool_id, pool in pools.items():
        known = before.pools[pool_id].plans if pool_id in before.pools else {}
        for name, plan in pool.plans.items():
            if plan is known.get(name) and name in earlier:
                shards |= earlier[name]
            else:
                shards |= split(name, pool_id, epoch, plan.adapters)
    for name, one in kept.items():
        shards |= split(name, one.pool_id, epoch, one.adapters)
    return {key: _same(before.shards.get(key), shard) for key, shard in shards.items()}


def recalled(stored: Iterable[AssignmentShard]) -> dict[str, Recalled]:
    """By pool, who holds what, and in a slot, according to what is stored."""
    holders: dict[str, dict[str, tuple[str, ...]]] = {}
    slotted: dict[str, dict[str, tuple[str, ...]]] = {}
    for shard in stored:
        if shard.shard >= shard.shards:
            continue
        pool_holders, pool_slotted = holders.setdefault(shard.pool_id, {}), slotted.setdefault(shard.pool_id, {})
        for adapter in shard.adapters:
            name = adapter.adapter_id
            pool_holders[name] = (*pool_holders.get(name, ()), shard.replica_id)
            if adapter.tier == "gpu":
                pool_slotted[name] = (*pool_slotted.get(name, ()), shard.replica_id)
    return {pool_id: Recalled(holders=found, slotted=slotted[pool_id]) for pool_id, found in holders.items()}


def _same(before: AssignmentShard | None, shard: AssignmentShard) -> AssignmentShard:
    return before if before is not None and before == shard else shard
