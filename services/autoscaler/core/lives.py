"""Names come round again: what a replica said before it was removed is no word of the next one with its name."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.autoscaler.core.load import PoolLoad


def gone_after(gone: Mapping[str, float], load: PoolLoad) -> dict[str, float]:
    """By the name of a replica that the actuator does not know, or knows again: when its last life was heard last."""
    existing = load.existing
    if existing is None:
        return {}
    return {
        name: replica.heard_at_s
        for name, replica in load.replicas.items()
        if name not in existing or (name in gone and replica.heard_at_s <= gone[name])
    }


def of_this_life(load: PoolLoad, gone: Mapping[str, float]) -> PoolLoad:
    """The load without what earlier lives of existing replicas have said."""
    existing = load.existing or frozenset()
    heard = {name: one for name, one in load.replicas.items() if name not in existing or name not in gone}
    return load if len(heard) == len(load.replicas) else msgspec.structs.replace(load, replicas=heard)
