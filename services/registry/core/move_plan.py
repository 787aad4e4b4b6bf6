"""What it would take to move every adapter of a base to another one; nothing here changes anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from services.registry.core.aliases import Denied
from services.registry.core.description import largest_rank
from services.registry.core.moves import OPEN, Migration
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


def decide_start(
    old: BaseModelRecord | None, new: BaseModelRecord | None, hashes: tuple[str, str], opened: Sequence[Migration]
) -> Migration | Denied | None:
    """None: a migration from hashes[0] to hashes[1] may begin; the one that is open already; or why not."""
    for base, field, wanted in ((old, "from_base_model_hash", hashes[0]), (new, "to_base_model_hash", hashes[1])):
        if base is None:
            message = f"No base model with the hash {wanted[:64]!r} is served here."
            return Denied(kind="missing", code="base_model_unknown", message=message, field=field)
    if hashes[0] == hashes[1]:
        message = "A migration needs two different base models."
        return Denied(kind="invalid", code="same_base_model", message=message, field="to_base_model_hash")
    for migration in opened:
        if migration.state in OPEN and (refusal := _beside(migration, hashes)) is not None:
            return refusal
    return None


def _beside(migration: Migration, hashes: tuple[str, str]) -> Migration | Denied | None:
    ends = migration.from_base_model_hash, migration.to_base_model_hash
    if ends == hashes:
        return migration
    if not {ends[0]} & set(hashes) and ends[1] != hashes[0]:
        return None
    message = (
        f"Migration {migration.migration_id} from {ends[0][:12]} to {ends[1][:12]} is {migration.state}:"
        " finish or cancel it first."
    )
    return Denied(kind="conflict", code="migration_open", message=message)


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
