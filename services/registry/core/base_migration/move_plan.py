"""What it would take to move every adapter of a base to another one; nothing here changes anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from services.registry.core.base_migration.moves import Migration
from services.registry.core.deployment.aliases import Denied
from services.registry.core.files.description import largest_rank
from services.registry.core.records import StoredAdapter, adapter_record
from shared.messages.desired import BaseModelRecord
from shared.messages.pools import pool_id, smallest_rank_class

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What one adapter's training takes, and what an hour of a GPU costs."""

    gpu_hours_each: float = 0.5
    usd_per_gpu_hour: float = 2.5


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter of the old base. `action` is "retrain", "blocked" (an alias means it and it cannot be trained
    again: `reason` says why) or "retire" (no alias means it). `owners` is None where placement did not say."""

    adapter_id: str
    tenant_id: str
    status: str
    aliases: tuple[str, ...]
    requests_per_day: float
    dataset_uri: str | None
    pool_id: str
    to_pool_id: str | None
    action: str
    reason: str
    gpu_hours: float = 0.0
    usd: float = 0.0
    owners: tuple[str, ...] | None = None


class PlanTotals(msgspec.Struct, frozen=True, kw_only=True):
    adapters: int = 0
    aliases: int = 0
    retrain: int = 0
    blocked: int = 0
    retire: int = 0
    requests_per_day: float = 0.0
    gpu_hours: float = 0.0
    usd: float = 0.0


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Who means an adapter (by alias or split), and how much it is asked for."""

    aliases: tuple[str, ...] = ()
    requests_per_day: float = 0.0


def base_unknown(base_model_hash: str, field: str) -> Denied:
    message = f"No base model with the hash {base_model_hash[:64]!r} is served here."
    return Denied(kind="missing", code="base_model_unknown", message=message, field=field)


def same_base() -> Denied:
    message = "A migration needs two different base models."
    return Denied(kind="invalid", code="same_base_model", message=message, field="to_base_model_hash")


def decide_start(wish: Migration, opened: Sequence[Migration]) -> Migration | Denied:
    """The migration itself if it may begin, or the same one if it is under way already.

    A base is left by one migration at a time, and nobody moves to a base that is being left: those adapters would
    have to move twice.
    """
    for migration in opened:
        if _route(migration) == _route(wish):
            return migration
        if _disturbs(migration, wish):
            origin, target = _route(migration)
            message = (
                f"Migration {migration.migration_id} from {origin[:12]} to {target[:12]} is {migration.state}:"
                " finish or cancel it first."
            )
            return Denied(kind="conflict", code="migration_open", message=message)
    return wish


def _route(migration: Migration) -> tuple[str, str]:
    return migration.from_base_model_hash, migration.to_base_model_hash


def _disturbs(one: Migration, other: Migration) -> bool:
    (origin, target), (other_origin, other_target) = _route(one), _route(other)
    return origin in (other_origin, other_target) or target == other_origin


def blocked(adapter: StoredAdapter, new: BaseModelRecord) -> str | None:
    """Why it cannot be trained again on the new base as it is; every reason, or None."""
    reasons = []
    if not adapter.announced.dataset_uri:
        reasons.append("it was announced without a dataset_uri")
    rank, limit = largest_rank(adapter.announced), max(new.rank_classes)
    if smallest_rank_class(rank, new.rank_classes) is None:
        reasons.append(f"its rank is {rank}, the largest rank served on {new.name} is {limit}")
    targets = adapter_record(adapter).target_modules
    modules = {target.rpartition(".")[2] for target in targets}
    if missing := sorted({*(modules - set(new.modules)), *_layers_over(targets, new.layers)}):
        reasons.append(f"{new.name} has no {', '.join(missing)}")
    return "; ".join(reasons) or None


def _layers_over(targets: Iterable[str], layers: int) -> set[str]:
    found = (match for target in targets if (match := _LAYER.search(target)))
    return {f"layer {match[1]}" for match in found if int(match[1]) >= layers}


def plan_row(adapter: StoredAdapter, new: BaseModelRecord, use: Use, terms: Terms) -> PlanRow:
    why_not = blocked(adapter, new)
    rank_class = smallest_rank_class(largest_rank(adapter.announced), new.rank_classes)
    action = "retire" if not use.aliases else "retrain" if why_not is None else "blocked"
    hours = terms.gpu_hours_each if action == "retrain" else 0.0
    return PlanRow(
        adapter_id=adapter.adapter_id,
        tenant_id=adapter.tenant_id,
        status=adapter.status,
        aliases=use.aliases,
        requests_per_day=use.requests_per_day,
        dataset_uri=adapter.announced.dataset_uri,
        pool_id=adapter.pool_id,
        to_pool_id=None if rank_class is None else pool_id(new.base_model_hash, rank_class),
        action=action,
        reason={"retire": "no alias means it", "retrain": "", "blocked": why_not or ""}[action],
        gpu_hours=hours,
        usd=hours * terms.usd_per_gpu_hour,
    )


def totals(rows: Iterable[PlanRow]) -> PlanTotals:
    every = list(rows)
    counts: Mapping[str, int] = {
        action: sum(row.action == action for row in every) for action in ("retrain", "blocked", "retire")
    }
    return PlanTotals(
        adapters=len(every),
        aliases=len({alias for row in every for alias in row.aliases}),
        requests_per_day=sum(row.requests_per_day for row in every),
        gpu_hours=sum(row.gpu_hours for row in every),
        usd=sum(row.usd for row in every),
        **counts,
    )
