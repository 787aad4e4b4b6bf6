"""Which base model records make sense, and which may replace a known one."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.registry.core.deployment.aliases import Denied
from shared.messages.desired import BaseModelRecord
from shared.messages.identity import is_digest


class StoredBase(msgspec.Struct, frozen=True, kw_only=True):
    """A base model as the registry keeps it; one that is retired takes no adapters and is told to nobody."""

    record: BaseModelRecord
    retired_at_s: float | None = None


def decide_base_model(
    record: BaseModelRecord, others: Iterable[BaseModelRecord], alias_names: frozenset[str]
) -> Denied | None:
    """None if the record may stand beside (or replace the same hash among) `others`."""
    return _check_shape(record) or _check_name(record, others, alias_names) or _check_kept(record, others)


def _check_shape(record: BaseModelRecord) -> Denied | None:
    ranks = record.rank_classes
    shapes = record.modules.values()
    rules = (
        ("base_model_hash", is_digest(record.base_model_hash), "64 characters of 0-9 a-f"),
        ("name", 0 < len(record.name) <= 128 and record.name.isprintable(), "1 to 128 printable characters"),
        ("layers", 0 < record.layers < 1 << 31, "at least 1"),
        ("max_context_tokens", 0 < record.max_context_tokens < 1 << 31, "at least 1"),
        ("rank_classes", bool(ranks) and min(ranks) > 0 and len(set(ranks)) == len(ranks), "different ranks above 0"),
        ("modules", bool(shapes) and all(s.in_features > 0 and s.out_features > 0 for s in shapes), "layer shapes"),
        ("tool_parser", len(record.tool_parser) <= 64, "at most 64 characters"),
    )
    for field, holds, wanted in rules:
        if not holds:
            return Denied(kind="invalid", code="base_model_invalid", message=f"{field} must be {wanted}.", field=field)
    return None


def _check_name(
    record: BaseModelRecord, others: Iterable[BaseModelRecord], alias_names: frozenset[str]
) -> Denied | None:
    """A name means one base to every client, so neither a second base nor an alias may have it."""
    taken = any(other.name == record.name and other.base_model_hash != record.base_model_hash for other in others)
    if not taken and record.name not in alias_names:
        return None
    what = "another base model" if taken else "an alias"
    message = f"The name {record.name!r} already means {what}."
    return Denied(kind="conflict", code="name_taken", message=message, field="name")


def _check_kept(record: BaseModelRecord, others: Iterable[BaseModelRecord]) -> Denied | None:
    """What follows from the hash cannot change under it, and no rank class that adapters use goes away."""
    for known in others:
        if known.base_model_hash != record.base_model_hash:
            continue
        if (known.layers, dict(known.modules)) != (record.layers, dict(record.modules)):
            message = "A base model of this hash is known with other layers or modules."
            return Denied(kind="conflict", code="base_model_differs", message=message, field="modules")
        if not set(known.rank_classes) <= set(record.rank_classes):
            message = f"Rank classes {list(known.rank_classes)} are in use; they can only be added to."
            return Denied(kind="conflict", code="rank_class_in_use", message=message, field="rank_classes")
    return None
