"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_tenants()
    _create_base_models()
    _create_adapters()
    _create_adapter_history()
    _create_aliases()
    _create_outbox()


def downgrade() -> None:
    for table in (
        "outbox", "alias_history", "aliases", "evaluations", "adapter_states", "adapters", "base_models",
        "api_keys", "tenants",
    ):  # fmt: skip
        op.drop_table(table)


def _create_tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("created_at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name="pk_tenants"),
    )
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("key_hash", sa.String(64), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("may_call_base", sa.Boolean(), nullable=False),
        sa.Column("created_at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_keys"),
        sa.UniqueConstraint("key_hash", name="uq_api_keys_key_hash"),
        _reference("api_keys", "tenant_id", "tenants"),
    )
    op.create_index("ix_api_keys_tenant_id", "api_keys", ["tenant_id"])


def _create_base_models() -> None:
    op.create_table(
        "base_models",
        sa.Column("base_model_hash", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("layers", sa.Integer(), nullable=False),
        sa.Column("modules", sa.JSON(), nullable=False),
        sa.Column("rank_classes", sa.JSON(), nullable=False),
        sa.Column("max_context_tokens", sa.Integer(), nullable=False),
        sa.Column("created_at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("base_model_hash", name="pk_base_models"),
        sa.UniqueConstraint("name", name="uq_base_models_name"),
    )


def _create_adapters() -> None:
    op.create_table(
        "adapters",
        sa.Column("adapter_id", sa.String(128), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("base_model_hash", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("alpha", sa.Float(), nullable=False),
        sa.Column("target_modules", sa.JSON(), nullable=False),
        sa.Column("weights_uri", sa.Text(), nullable=False),
        sa.Column("checksum", sa.Text(), nullable=False),
        sa.Column("use_rslora", sa.Boolean(), nullable=False),
        sa.Column("rank_pattern", sa.JSON(), nullable=False),
        sa.Column("alpha_pattern", sa.JSON(), nullable=False),
        sa.Column("alias", sa.Text()),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("registered_at_s", sa.Float(), nullable=False),
        sa.Column("updated_at_s", sa.Float(), nullable=False),
        sa.Column("deadline_s", sa.Float()),
        sa.Column("pool_id", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("store_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("defects", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("adapter_id", name="pk_adapters"),
        _reference("adapters", "tenant_id", "tenants"),
    )
    op.create_index("ix_adapters_tenant_id", "adapters", ["tenant_id"])
    op.create_index("ix_adapters_status", "adapters", ["status"])


def _create_adapter_history() -> None:
    op.create_table(
        "adapter_states",
        sa.Column("row_id", _ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("adapter_id", sa.String(128), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("row_id", name="pk_adapter_states"),
        _reference("adapter_states", "adapter_id", "adapters"),
    )
    op.create_index("ix_adapter_states_adapter_id", "adapter_states", ["adapter_id"])
    op.create_table(
        "evaluations",
        sa.Column("row_id", _ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("adapter_id", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("replica_id", sa.String(64), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("engine_build", sa.Text(), nullable=False),
        sa.Column("largest_logprob_change", sa.Float(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("row_id", name="pk_evaluations"),
        _reference("evaluations", "adapter_id", "adapters"),
    )
    op.create_index("ix_evaluations_adapter_id", "evaluations", ["adapter_id"])


def _create_aliases() -> None:
    op.create_table(
        "aliases",
        sa.Column("alias", sa.String(192), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("adapter_id", sa.String(128), nullable=False),
        sa.Column("previous_adapter_id", sa.String(128)),
        sa.Column("updated_at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("alias", name="pk_aliases"),
        _reference("aliases", "tenant_id", "tenants"),
        _reference("aliases", "adapter_id", "adapters"),
        _reference("aliases", "previous_adapter_id", "adapters", "adapter_id"),
    )
    op.create_index("ix_aliases_tenant_id", "aliases", ["tenant_id"])
    op.create_index("ix_aliases_adapter_id", "aliases", ["adapter_id"])
    op.create_table(
        "alias_history",
        sa.Column("row_id", _ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("alias", sa.String(192), nullable=False),
        sa.Column("adapter_id", sa.String(128)),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("row_id", name="pk_alias_history"),
    )
    op.create_index("ix_alias_history_alias", "alias_history", ["alias"])


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("row_id", _ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("message_id", sa.String(32), nullable=False),
        sa.Column("channel", sa.String(64), nullable=False),
        sa.Column("ids", sa.JSON(), nullable=False),
        sa.Column("payload", sa.Text()),
        sa.Column("created_at_s", sa.Float(), nullable=False),
        sa.Column("published_at_s", sa.Float()),
        sa.PrimaryKeyConstraint("row_id", name="pk_outbox"),
    )
    op.create_index("ix_outbox_published_at_s_row_id", "outbox", ["published_at_s", "row_id"])


def _reference(table: str, column: str, target: str, target_column: str | None = None) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_{column}_{target}"
    return sa.ForeignKeyConstraint([column], [f"{target}.{target_column or column}"], name=name)
