"""The tables of moves from one base model to another."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, ForeignKey, Index, Integer, String, Table, Text

from services.registry.io.schema import METADATA

MIGRATIONS = Table(
    "migrations",
    METADATA,
    Column("migration_id", String(32), primary_key=True),
    Column("from_base_model_hash", String(64), nullable=False),
    Column("to_base_model_hash", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("gpu_hours_each", Float, nullable=False),
    Column("cost_per_gpu_hour", Float, nullable=False),
    Column("created_at_s", Float, nullable=False),
    Column("updated_at_s", Float, nullable=False),
    Column("actor", Text, nullable=False),
)

MIGRATION_ITEMS = Table(
    "migration_items",
    METADATA,
    Column("migration_id", ForeignKey("migrations.migration_id"), primary_key=True),
    Column("adapter_id", ForeignKey("adapters.adapter_id"), primary_key=True),
    Column("aliases", JSON, nullable=False),
    Column("moved", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("successor_id", String(128)),
    Column("updated_at_s", Float, nullable=False),
    Column("tenant_id", String(63), nullable=False),
    Column("requests_per_day", Float, nullable=False),
    # How many names `aliases` and `moved` hold: no database sums up JSON.
    Column("aliases_left", Integer, nullable=False),
    Column("aliases_moved", Integer, nullable=False),
    Index("ix_migration_items_state", "migration_id", "state", "adapter_id"),
    Index("ix_migration_items_adapter_id", "adapter_id"),
)
