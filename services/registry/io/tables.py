"""The tables. Times are seconds since 1970; lists and maps are JSON; ids are what identity.py allows."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    false,
    true,
)

from services.registry.io.schema import METADATA, ROW_NUMBER, limits

TENANTS = Table(
    "tenants",
    METADATA,
    Column("tenant_id", String(63), primary_key=True),
    Column("weight", Float, nullable=False),
    Column("created_at_s", Float, nullable=False),
    *limits(),
)

API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("key_id", String(32), primary_key=True),
    Column("key_hash", String(64), nullable=False, unique=True),
    Column("tenant_id", ForeignKey("tenants.tenant_id"), nullable=False, index=True),
    Column("may_call_base", Boolean, nullable=False),
    Column("created_at_s", Float, nullable=False),
    *limits(),
)

BASE_MODELS = Table(
    "base_models",
    METADATA,
    Column("base_model_hash", String(64), primary_key=True),
    Column("name", String(128), nullable=False, unique=True),
    Column("layers", Integer, nullable=False),
    Column("modules", JSON, nullable=False),
    Column("rank_classes", JSON, nullable=False),
    Column("max_context_tokens", Integer, nullable=False),
    Column("created_at_s", Float, nullable=False),
    Column("vocabulary_size", Integer, nullable=False, server_default="0"),
    Column("tool_parser", String(64), nullable=False, server_default=""),
    Column("retired_at_s", Float),
)

ADAPTERS = Table(
    "adapters",
    METADATA,
    Column("adapter_id", String(128), primary_key=True),
    Column("tenant_id", ForeignKey("tenants.tenant_id"), nullable=False),
    Column("version", Text, nullable=False),
    # No foreign key: a rejected announcement may name a base model that is not known here.
    Column("base_model_hash", Text, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("alpha", Float, nullable=False),
    Column("target_modules", JSON, nullable=False),
    Column("weights_uri", Text, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("use_rslora", Boolean, nullable=False),
    Column("rank_pattern", JSON, nullable=False),
    Column("alpha_pattern", JSON, nullable=False),
    Column("alias", Text),
    Column("status", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("registered_at_s", Float, nullable=False),
    Column("updated_at_s", Float, nullable=False),
    Column("deadline_s", Float),
    Column("pool_id", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("store_key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("defects", JSON, nullable=False),
    Column("effects", JSON, nullable=False, server_default="[]"),
    Column("predecessor_id", String(128)),
    Column("dataset_uri", Text),
    Column("peft_config", Text),
    Column("evaluated_by", String(16), nullable=False, server_default="fleet"),
    # Targets and patterns as replicas apply them: plain names, whatever expressions PEFT wrote.
    Column("applied", JSON),
    # Whether placement gives it owners; until then also if no alias names it.
    Column("wanted", Boolean, nullable=False, server_default=true()),
    Column("wanted_until_s", Float, index=True),
    Column("pinned", Boolean, nullable=False, server_default=false()),
    # Each also gives the order of a page.
    Index("ix_adapters_tenant_id", "tenant_id", "adapter_id"),
    Index("ix_adapters_status", "status", "adapter_id"),
    Index("ix_adapters_pool_id", "pool_id", "adapter_id"),
    # Who has a file that was uploaded.
    Index("ix_adapters_checksum", "checksum"),
)
# Of the few adapters that have one.
_FOLLOWS = ADAPTERS.c.predecessor_id.is_not(None)
Index("ix_adapters_predecessor_id", ADAPTERS.c.predecessor_id, sqlite_where=_FOLLOWS, postgresql_where=_FOLLOWS)

ADAPTER_STATES = Table(
    "adapter_states",
    METADATA,
    Column("row_id", ROW_NUMBER, primary_key=True, autoincrement=True),
    Column("adapter_id", ForeignKey("adapters.adapter_id"), nullable=False, index=True),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("actor", Text, nullable=False, server_default=""),
)

EVALUATIONS = Table(
    "evaluations",
    METADATA,
    Column("row_id", ROW_NUMBER, primary_key=True, autoincrement=True),
    Column("adapter_id", ForeignKey("adapters.adapter_id"), nullable=False, index=True),
    Column("digest", String(64), nullable=False),
    Column("replica_id", String(64), nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("engine_build", Text, nullable=False),
    Column("largest_logprob_change", Float, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("effects", JSON, nullable=False, server_default="[]"),
    Column("finite", Boolean, nullable=False, server_default=true()),
)

ALIASES = Table(
    "aliases",
    METADATA,
    Column("alias", String(192), primary_key=True),
    Column("tenant_id", ForeignKey("tenants.tenant_id"), nullable=False),
    Column("adapter_id", ForeignKey("adapters.adapter_id"), nullable=False, index=True),
    Column("previous_adapter_id", ForeignKey("adapters.adapter_id")),
    Column("updated_at_s", Float, nullable=False),
    Column("revision", Integer, nullable=False, server_default="1"),
    # With a split, this share of the sessions means the other version.
    Column("split_adapter_id", String(128)),
    Column("split_percent", Float, nullable=False, server_default="0"),
    Column("split_salt", String(32), nullable=False, server_default=""),
    # On which conditions it goes back by itself.
    Column("guard", JSON(none_as_null=True)),
    Index("ix_aliases_tenant_id", "tenant_id", "alias"),
)
_SPLIT = ALIASES.c.split_adapter_id.is_not(None)
Index("ix_aliases_split_adapter_id", ALIASES.c.split_adapter_id, sqlite_where=_SPLIT, postgresql_where=_SPLIT)
_GUARDED = ALIASES.c.guard.is_not(None)
Index("ix_aliases_guarded", ALIASES.c.alias, sqlite_where=_GUARDED, postgresql_where=_GUARDED)

ALIAS_HISTORY = Table(
    "alias_history",
    METADATA,
    Column("row_id", ROW_NUMBER, primary_key=True, autoincrement=True),
    Column("alias", String(192), nullable=False, index=True),
    Column("adapter_id", String(128)),
    Column("reason", Text, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("change", String(16), nullable=False, server_default="set"),
    Column("revision", Integer, nullable=False, server_default="0"),
    Column("previous_adapter_id", String(128)),
    Column("split_adapter_id", String(128)),
    Column("split_percent", Float, nullable=False, server_default="0"),
    Column("actor", Text, nullable=False, server_default=""),
)

# Files at their final place in the store; gone as soon as an adapter is verified with one.
UPLOADS = Table(
    "uploads",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("at_s", Float, nullable=False, index=True),
    # Until then it is being removed.
    Column("going_until_s", Float),
)

OUTBOX = Table(
    "outbox",
    METADATA,
    Column("row_id", ROW_NUMBER, primary_key=True, autoincrement=True),
    Column("message_id", String(32), nullable=False),
    Column("channel", String(64), nullable=False),
    Column("ids", JSON, nullable=False),
    Column("payload", Text),
    Column("created_at_s", Float, nullable=False),
    Column("published_at_s", Float),
    Index("ix_outbox_published_at_s", "published_at_s"),
)

_PENDING = OUTBOX.c.published_at_s.is_(None)
Index("ix_outbox_pending", OUTBOX.c.row_id, sqlite_where=_PENDING, postgresql_where=_PENDING)
