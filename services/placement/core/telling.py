"""What gateways and the autoscaler are told of every pool: owner counts, and pressures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from services.placement.core.pool import PoolMemory
from services.placement.core.pressure import eased
from shared.messages.desired import OwnerCount, PoolPressure


def owner_counts(
    on_record: Iterable[str], pools: Mapping[str, PoolMemory], owners: int, epoch: int
) -> Iterator[OwnerCount]:
    """Of every pool that is on record or in sight."""
    for pool_id in sorted({*on_record, *pools}):
        exceptions = pools[pool_id].counts if pool_id in pools else {}
        yield OwnerCount(pool_id=pool_id, owners=owners, exceptions=exceptions, epoch=epoch)


def pressures(
    pools: Mapping[str, PoolMemory], stored: Mapping[str, PoolPressure], now_s: float, epoch: int
) -> Iterator[PoolPressure]:
    """Of every pool that is under pressure or was once; nobody needs to be told of the others. A pool of which no
    replica is left wishes for none: there is nobody who could thrash, and nobody who could take the wish back."""
    for pool_id in sorted({*pools, *stored}):
        if pool_id in pools:
            told = pools[pool_id].thrash.pressure
        else:
            told = eased(stored[pool_id], now_s, "the pool has no replica any more")
        if told is not None:
            yield msgspec.structs.replace(told, epoch=epoch)
