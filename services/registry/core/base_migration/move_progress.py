"""How far a migration has come, and what is left of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from services.registry.core.base_migration.move_items import UNTRAINED
from services.registry.core.base_migration.moves import Migration


class StateCount(msgspec.Struct, frozen=True, kw_only=True):
    """The items of one state; `named` of them are what an alias means."""

    state: str
    items: int
    named: int
    aliases_left: int
    aliases_moved: int


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """`overdue` items were requested longer ago than a retraining may take. What is left to train is what an alias
    means and has no active successor; without a pointer to its dataset, or failed, it is counted all the same."""

    items: int
    by_state: Mapping[str, int]
    aliases_left: int
    aliases_moved: int
    overdue: int
    untrained: int
    gpu_hours_left: float
    usd_left: float


def progress(migration: Migration, counts: Iterable[StateCount], overdue: int) -> Progress:
    every = list(counts)
    untrained = sum(count.named for count in every if count.state in UNTRAINED)
    hours = untrained * migration.gpu_hours_each
    return Progress(
        items=sum(count.items for count in every),
        by_state={count.state: count.items for count in sorted(every, key=lambda one: one.state)},
        aliases_left=sum(count.aliases_left for count in every),
        aliases_moved=sum(count.aliases_moved for count in every),
        overdue=overdue,
        untrained=untrained,
        gpu_hours_left=hours,
        usd_left=hours * migration.cost_per_gpu_hour,
    )
