"""Which migration and which base model are meant, and in which order aliases are moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_OPEN = ("running", "held", "finishing")


class Unclear(ValueError):
    """What was typed means nothing, or several things; one sentence and the choices."""


def base_meant(bases: Sequence[Row], text: str) -> str:
    """The hash of the base model with this name, or whose hash begins so. Raises Unclear."""
    named = [base for base in bases if base["name"] == text]
    found = named or [base for base in bases if text and base["base_model_hash"].startswith(text)]
    if len(found) == 1:
        return str(found[0]["base_model_hash"])
    lines = [f"  {base['base_model_hash']}  {base['name']}" for base in found or bases]
    what = "means several base models" if found else "is no base model"
    raise Unclear("\n".join([f"{text!r} {what}: give a name or the beginning of a hash.", *lines]))


def migration_meant(migrations: Sequence[Row], migration_id: str | None, *, ended: bool = False) -> str:
    """The one that was named; else the only one that is open or, with `ended`, the newest. Raises Unclear."""
    if migration_id is not None:
        return migration_id
    opened = [one for one in migrations if one["state"] in _OPEN]
    if len(opened) == 1 or (ended and migrations and not opened):
        return str((opened or migrations)[0]["migration_id"])
    if not opened:
        raise Unclear("There is no migration under way: `lorafleet migrate start` begins one.")
    lines = [f"  {one['migration_id']}  {one['state']}" for one in opened]
    raise Unclear("\n".join(["Several migrations are under way: name one by --migration ID.", *lines]))


def quietest_first(items: Iterable[Row]) -> list[str]:
    """The aliases that are ready to be cut over: whoever is asked for least goes first."""
    ready = [(item["requests_per_day"], alias) for item in items for alias in item["aliases"]]
    return list(dict.fromkeys(alias for _, alias in sorted(ready)))


def told_plan(totals: Row) -> str:
    parts = (
        f"{totals['adapters']} adapters, {totals['aliases']} aliases, {totals['requests_per_day']:.1f} requests a day",
        f"{totals['retrain']} to train again: {totals['gpu_hours']:.1f} GPU-hours, {totals['usd']:.2f} USD",
        f"{totals['blocked']} that cannot be, {totals['retire']} that no alias means",
    )
    return "; ".join(parts) + "."


def told_progress(migration: Row) -> str:
    """The headline of a migration, in a few lines."""
    progress = migration["progress"]
    states = ", ".join(f"{count} {state}" for state, count in progress["by_state"].items()) or "no adapters"
    aliases = progress["aliases_moved"] + progress["aliases_left"]
    lines = [
        f"Migration {migration['migration_id']} is {migration['state']}: {migration['from_base_model_hash'][:12]} to"
        f" {migration['to_base_model_hash'][:12]}.",
        f"Adapters: {states}. Aliases: {progress['aliases_moved']} of {aliases} moved.",
        f"Left to train: {progress['untrained']}, {progress['gpu_hours_left']:.1f} GPU-hours,"
        f" {progress['usd_left']:.2f} USD.",
    ]
    if progress["overdue"]:
        lines.append(f"Overdue: {progress['overdue']} were asked for long ago.")
    if migration["reason"]:
        lines.append(f"Last change by {migration['actor'] or 'nobody'}: {migration['reason']}")
    return "\n".join(lines)


def shown_item(item: Row) -> dict[str, Any]:
    """For a table: one cell for the aliases, those that have moved marked, and whether it takes too long."""
    aliases = [*item["aliases"], *(f"{alias} (moved)" for alias in item["moved"])]
    state = f"{item['state']} (overdue)" if item["overdue"] else item["state"]
    return {**item, "aliases": ", ".join(aliases), "state": state}


def shown_row(row: Row) -> dict[str, Any]:
    owners = None if row["owners"] is None else ", ".join(row["owners"])
    return {**row, "aliases": ", ".join(row["aliases"]), "owners": owners}
