"""The tables of the gate: evaluation sets, the reports on candidates, and whose signatures are believed."""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, Column, Float, ForeignKey, Index, String, Table, Text

from services.registry.io.schema import METADATA, ROW_NUMBER

EVALUATION_SETS = Table(
    "evaluation_sets",
    METADATA,
    # SHA-256 of its content: a changed set is another set.
    Column("set_id", String(64), primary_key=True),
    Column("tenant_id", ForeignKey("tenants.tenant_id"), primary_key=True),
    # The one adapter it is for; "": every adapter of the tenant.
    Column("adapter_id", String(128), primary_key=True),
    Column("cases", JSON, nullable=False),
    Column("policy", JSON, nullable=False),
    Column("created_at_s", Float, nullable=False),
    Index("ix_evaluation_sets_tenant_id_adapter_id", "tenant_id", "adapter_id", "created_at_s"),
)

EVALUATION_REPORTS = Table(
    "evaluation_reports",
    METADATA,
    Column("row_id", ROW_NUMBER, primary_key=True, autoincrement=True),
    Column("adapter_id", ForeignKey("adapters.adapter_id"), nullable=False, index=True),
    Column("source", String(16), nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("set_id", String(64)),
    Column("predecessor_id", String(128)),
    Column("replica_id", String(64), nullable=False),
    Column("scores", JSON, nullable=False),
    Column("cases", JSON, nullable=False),
    Column("signed_by", String(32), nullable=False),
    Column("at_s", Float, nullable=False),
)

PIPELINE_KEYS = Table(
    "pipeline_keys",
    METADATA,
    Column("key_id", String(32), primary_key=True),
    # Whose adapters it may sign for; "": everybody's.
    Column("tenant_id", String(63), nullable=False),
    Column("name", Text, nullable=False),
    Column("public_key", String(64), nullable=False, unique=True),
    Column("created_at_s", Float, nullable=False),
)
