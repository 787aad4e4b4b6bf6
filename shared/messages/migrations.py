"""Facts about the move of adapters from one base model to another."""

from __future__ import annotations

import msgspec


class RetrainRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline is asked to train this adapter again on another base, and to announce the result with
    `predecessor_id` = `adapter_id`. Everything but the weights stays: `dataset_uri` says what it was trained on."""

    migration_id: str
    adapter_id: str
    tenant_id: str
    from_base_model_hash: str
    to_base_model_hash: str
    rank: int
    alpha: float
    target_modules: tuple[str, ...] | str
    aliases: tuple[str, ...]
    dataset_uri: str | None = None
    gpu_hours: float = 0.0


class MigrationMoved(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter of a migration, or (with an empty `adapter_id`) the migration itself, came to a new state."""

    migration_id: str
    adapter_id: str
    state: str
    reason: str
    actor: str = ""
    at_s: float = 0.0
