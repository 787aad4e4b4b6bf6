"""The adapters that are to be placed, by pool: found anew only where the registry's word has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from services.placement.core.plan import is_placed
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey

Records = Mapping[str, AdapterRecord]
"""By adapter id."""


class Catalog(msgspec.Struct, frozen=True):
    """A pool of which nothing has changed is the same object in the next catalog."""

    source: Mapping[AdapterKey, AdapterRecord] = {}
    pools: Mapping[str, Records] = {}


def indexed(before: Catalog, adapters: Mapping[AdapterKey, AdapterRecord]) -> Catalog:
    if adapters is before.source:
        return before
    pools = dict(before.pools)
    opened: dict[str, dict[str, AdapterRecord]] = {}
    for old, new in _changes(before.source, adapters):
        for record in (old, new):
            if record is not None and record.pool_id not in opened:
                opened[record.pool_id] = dict(pools.get(record.pool_id, {}))
        if old is not None and opened[old.pool_id].get(old.adapter_id) == old:
            del opened[old.pool_id][old.adapter_id]
        if new is not None and is_placed(new):
            opened[new.pool_id][new.adapter_id] = new
    return Catalog(adapters, {**pools, **opened})


def _changes(
    before: Mapping[AdapterKey, AdapterRecord], after: Mapping[AdapterKey, AdapterRecord]
) -> Iterator[tuple[AdapterRecord | None, AdapterRecord | None]]:
    for key in before.keys() - after.keys():
        yield before[key], None
    for key, record in after.items():
        old = before.get(key)
        if old is not record:
            yield old, record
