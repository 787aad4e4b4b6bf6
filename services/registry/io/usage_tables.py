"""The tables of usage: one row a request, and what is summed up of them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, String, Table, Text

from services.registry.io.schema import METADATA

USAGE = Table(
    "usage",
    METADATA,
    Column("call_id", String(64), primary_key=True),
    Column("request_id", Text, nullable=False),
    Column("tenant_id", String(63), nullable=False),
    Column("key_id", String(32), nullable=False),
    Column("alias", Text, nullable=False),
    Column("adapter_id", String(128), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("pool_id", String(64), nullable=False),
    Column("replica_id", String(64), nullable=False),
    Column("gateway_id", String(64), nullable=False),
    Column("tier", String(8), nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("ttft_ms", Float),
    Column("duration_ms", Float, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("at_s", Float, nullable=False),
    Index("ix_usage_adapter_id", "adapter_id", "at_s", "call_id"),
    Index("ix_usage_tenant_id", "tenant_id", "at_s", "call_id"),
    Index("ix_usage_alias", "alias", "at_s", "call_id"),
    Index("ix_usage_at_s", "at_s", "call_id"),
)

ADAPTER_STATS = Table(
    "adapter_stats",
    METADATA,
    Column("adapter_id", String(128), primary_key=True),
    Column("window_start", Float, primary_key=True),
    Column("pool_id", String(64), nullable=False),
    Column("requests", Integer, nullable=False),
    Column("errors", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("gpu_hits", Integer, nullable=False),
    Index("ix_adapter_stats_window_start", "window_start", "pool_id"),
)

TENANT_USAGE = Table(
    "tenant_usage",
    METADATA,
    Column("tenant_id", String(63), primary_key=True),
    Column("day", Integer, primary_key=True),  # days since 1970, UTC
    Column("requests", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Index("ix_tenant_usage_day", "day"),
)
