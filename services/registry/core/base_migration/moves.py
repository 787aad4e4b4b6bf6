"""Migrations from one base model to another: their states, and what may be done in each."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.registry.core.base_migration.move_items import Item, step
from services.registry.core.defects import quoted
from services.registry.core.deployment.aliases import Denied

OPEN = ("running", "held", "finishing")
"""States of a migration that something must still happen to; a base is the origin of one such at most."""

_TURNS: Mapping[str, frozenset[str]] = {
    "running": frozenset({"held", "finishing", "cancelled"}),
    "held": frozenset({"running", "cancelled"}),
    "finishing": frozenset({"running", "finished"}),
    "finished": frozenset(),
    "cancelled": frozenset(),
}


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One base's adapters on their way to another base. `actor` and `reason` are those of the last change."""

    migration_id: str
    from_base_model_hash: str
    to_base_model_hash: str
    state: str
    reason: str
    gpu_hours_each: float
    cost_per_gpu_hour: float
    created_at_s: float
    updated_at_s: float
    actor: str = ""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants a migration to change, and why."""

    actor: str = ""
    reason: str = ""


def turn(migration: Migration, state: str, wish: Turn, now_s: float) -> Migration | Denied:
    """The migration in `state`; unchanged if it is there already, denied if that cannot be reached from where it is."""
    if migration.state == state:
        return migration
    if state not in _TURNS[migration.state]:
        message = f"Migration {migration.migration_id} is {migration.state}; it cannot become {state}."
        return Denied(kind="conflict", code=f"migration_{migration.state}", message=message)
    return msgspec.structs.replace(migration, state=state, reason=wish.reason, actor=wish.actor, updated_at_s=now_s)


def unready(migration: Migration, item: Item | None, alias: str) -> Denied | None:
    """Why the alias cannot be cut over, None if it can be."""
    if migration.state != "running":
        return _not_running(migration)
    if item is None:
        return not_in_migration(migration, alias)
    if item.state not in ("trained", "cut_over", "rolled_back"):
        message = f"{item.adapter_id}, which {alias} means, is {item.state}: {item.reason}."
        return Denied(kind="conflict", code="successor_not_ready", message=message)
    return None


def irrevocable(migration: Migration, item: Item | None, alias: str) -> Denied | None:
    """Why the alias cannot go back, None if it can."""
    if migration.state not in ("running", "held"):
        return _not_running(migration)
    if item is None or item.state == "done":
        return not_in_migration(migration, alias)
    return None


def nobody_serves(alias: str, pool_id: str) -> Denied:
    message = f"Alias {alias!r} stays as it is: no replica of pool {pool_id} is ready."
    return Denied(kind="unavailable", code="no_ready_replica", message=message)


def not_in_migration(migration: Migration, alias: str) -> Denied:
    message = f"Alias {quoted(alias)} has no part in migration {migration.migration_id}."
    return Denied(kind="missing", code="alias_not_in_migration", message=message)


def retry(migration: Migration, item: Item | None, adapter_id: str, now_s: float) -> Item | Denied:
    """Ask for a failed item once more; one that is asked for stays as it is."""
    if migration.state != "running":
        return _not_running(migration)
    if item is None:
        message = f"Adapter {quoted(adapter_id)} has no part in migration {migration.migration_id}."
        return Denied(kind="missing", code="adapter_not_in_migration", message=message)
    if item.state == "requested":
        return item
    if item.state != "failed":
        message = f"{item.adapter_id} is {item.state}; only what has failed can be asked for again."
        return Denied(kind="conflict", code="item_not_failed", message=message)
    return step(item, "requested", "asked for again", now_s)


def _not_running(migration: Migration) -> Denied:
    message = f"Migration {migration.migration_id} is {migration.state}; that is done while it is running."
    return Denied(kind="conflict", code=f"migration_{migration.state}", message=message)
