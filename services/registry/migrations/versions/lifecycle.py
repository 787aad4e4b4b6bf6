"""Evaluation sets and reports, splits of aliases, usage, and moves between base models."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_PAGES = (
    ("ix_adapters_tenant_id", "adapters", ["tenant_id", "adapter_id"]),
    ("ix_adapters_status", "adapters", ["status", "adapter_id"]),
    ("ix_aliases_tenant_id", "aliases", ["tenant_id", "alias"]),
)
"""Had the first column alone, and left a page to be sorted."""
_INDEXES = (
    ("ix_adapters_wanted_until_s", "adapters", ["wanted_until_s"]),
    ("ix_adapters_pool_id", "adapters", ["pool_id", "adapter_id"]),
    ("ix_outbox_published_at_s", "outbox", ["published_at_s"]),
)
_PARTIAL_INDEXES = (
    ("ix_adapters_predecessor_id", "adapters", "predecessor_id", "predecessor_id IS NOT NULL"),
    ("ix_aliases_split_adapter_id", "aliases", "split_adapter_id", "split_adapter_id IS NOT NULL"),
    ("ix_aliases_guarded", "aliases", "alias", "guard IS NOT NULL"),
    ("ix_outbox_pending", "outbox", "row_id", "published_at_s IS NULL"),
)
"""Of the few rows that are asked for all day."""


def upgrade() -> None:
    for table, column in _new_columns():
        op.add_column(table, column)
    # Said in words alone until now; nobody may ever override it.
    op.execute(sa.text("UPDATE evaluations SET finite = false WHERE reason LIKE '%is not finite'"))
    for name, table, columns in _PAGES:
        op.drop_index(name, table)
        op.create_index(name, table, columns)
    op.drop_index("ix_outbox_published_at_s_row_id", "outbox")
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns)
    for name, table, column, where in _PARTIAL_INDEXES:
        op.create_index(name, table, [column], sqlite_where=sa.text(where), postgresql_where=sa.text(where))
    _create_evaluations()
    _create_usage()
    _create_usage_sums()
    _create_migrations()


def downgrade() -> None:
    for table in (
        "migration_items", "migrations", "tenant_usage", "adapter_stats", "usage", "pipeline_keys",
        "evaluation_reports", "evaluation_sets",
    ):  # fmt: skip
        op.drop_table(table)
    for name, table, *_ in (*_PARTIAL_INDEXES, *_INDEXES):
        op.drop_index(name, table)
    op.create_index("ix_outbox_published_at_s_row_id", "outbox", ["published_at_s", "row_id"])
    for name, table, columns in _PAGES:
        op.drop_index(name, table)
        op.create_index(name, table, columns[:1])
    for table, column in _new_columns():
        op.drop_column(table, column.name)


def _new_columns() -> Iterator[tuple[str, sa.Column]]:
    yield "adapters", sa.Column("predecessor_id", sa.String(128))
    yield "adapters", sa.Column("dataset_uri", sa.Text())
    yield "adapters", sa.Column("peft_config", sa.Text())
    yield "adapters", sa.Column("evaluated_by", sa.String(16), nullable=False, server_default="fleet")
    yield "adapters", sa.Column("applied", sa.JSON())
    yield "adapters", sa.Column("wanted", sa.Boolean(), nullable=False, server_default=sa.true())
    yield "adapters", sa.Column("wanted_until_s", sa.Float())
    yield "adapter_states", sa.Column("actor", sa.Text(), nullable=False, server_default="")
    yield "evaluations", sa.Column("finite", sa.Boolean(), nullable=False, server_default=sa.true())
    yield "base_models", sa.Column("vocabulary_size", sa.Integer(), nullable=False, server_default="0")
    yield "base_models", sa.Column("retired_at_s", sa.Float())
    yield "aliases", sa.Column("revision", sa.Integer(), nullable=False, server_default="1")
    yield "aliases", sa.Column("split_adapter_id", sa.String(128))
    yield "aliases", sa.Column("split_percent", sa.Float(), nullable=False, server_default="0")
    yield "aliases", sa.Column("split_salt", sa.String(32), nullable=False, server_default="")
    yield "aliases", sa.Column("guard", sa.JSON())
    yield "alias_history", sa.Column("change", sa.String(16), nullable=False, server_default="set")
    yield "alias_history", sa.Column("revision", sa.Integer(), nullable=False, server_default="0")
    yield "alias_history", sa.Column("previous_adapter_id", sa.String(128))
    yield "alias_history", sa.Column("split_adapter_id", sa.String(128))
    yield "alias_history", sa.Column("split_percent", sa.Float(), nullable=False, server_default="0")
    yield "alias_history", sa.Column("actor", sa.Text(), nullable=False, server_default="")


def _create_evaluations() -> None:
    op.create_table(
        "evaluation_sets",
        sa.Column("set_id", sa.String(64), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("adapter_id", sa.String(128), nullable=False),
        sa.Column("cases", sa.JSON(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("created_at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("set_id", "tenant_id", "adapter_id", name="pk_evaluation_sets"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name="fk_evaluation_sets_tenant_id_tenants"),
    )
    op.create_index(
        "ix_evaluation_sets_tenant_id_adapter_id", "evaluation_sets", ["tenant_id", "adapter_id", "created_at_s"]
    )
    op.create_table(
        "evaluation_reports",
        sa.Column("row_id", _ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("adapter_id", sa.String(128), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("set_id", sa.String(64)),
        sa.Column("predecessor_id", sa.String(128)),
        sa.Column("replica_id", sa.String(64), nullable=False),
        sa.Column("scores", sa.JSON(), nullable=False),
        sa.Column("cases", sa.JSON(), nullable=False),
        sa.Column("signed_by", sa.String(32), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("row_id", name="pk_evaluation_reports"),
        sa.ForeignKeyConstraint(
            ["adapter_id"], ["adapters.adapter_id"], name="fk_evaluation_reports_adapter_id_adapters"
        ),
    )
    op.create_index("ix_evaluation_reports_adapter_id", "evaluation_reports", ["adapter_id"])
    op.create_table(
        "pipeline_keys",
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("public_key", sa.String(64), nullable=False),
        sa.Column("created_at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_pipeline_keys"),
        sa.UniqueConstraint("public_key", name="uq_pipeline_keys_public_key"),
    )


def _create_usage() -> None:
    op.create_table(
        "usage",
        sa.Column("call_id", sa.String(64), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("adapter_id", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("pool_id", sa.String(64), nullable=False),
        sa.Column("replica_id", sa.String(64), nullable=False),
        sa.Column("gateway_id", sa.String(64), nullable=False),
        sa.Column("tier", sa.String(8), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=False),
        sa.Column("ttft_ms", sa.Float()),
        sa.Column("duration_ms", sa.Float(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("stream", sa.Boolean(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("call_id", name="pk_usage"),
    )
    op.create_index("ix_usage_adapter_id", "usage", ["adapter_id", "at_s", "call_id"])
    op.create_index("ix_usage_tenant_id", "usage", ["tenant_id", "at_s", "call_id"])
    op.create_index("ix_usage_alias", "usage", ["alias", "at_s", "call_id"])
    op.create_index("ix_usage_at_s", "usage", ["at_s", "call_id"])


def _create_usage_sums() -> None:
    op.create_table(
        "adapter_stats",
        sa.Column("adapter_id", sa.String(128), nullable=False),
        sa.Column("window_start", sa.Float(), nullable=False),
        sa.Column("pool_id", sa.String(64), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("gpu_hits", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("adapter_id", "window_start", name="pk_adapter_stats"),
    )
    op.create_index("ix_adapter_stats_window_start", "adapter_stats", ["window_start", "pool_id"])
    op.create_table(
        "tenant_usage",
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "day", name="pk_tenant_usage"),
    )
    op.create_index("ix_tenant_usage_day", "tenant_usage", ["day"])


def _create_migrations() -> None:
    op.create_table(
        "migrations",
        sa.Column("migration_id", sa.String(32), nullable=False),
        sa.Column("from_base_model_hash", sa.String(64), nullable=False),
        sa.Column("to_base_model_hash", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("gpu_hours_each", sa.Float(), nullable=False),
        sa.Column("cost_per_gpu_hour", sa.Float(), nullable=False),
        sa.Column("created_at_s", sa.Float(), nullable=False),
        sa.Column("updated_at_s", sa.Float(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("migration_id", name="pk_migrations"),
    )
    op.create_table(
        "migration_items",
        sa.Column("migration_id", sa.String(32), nullable=False),
        sa.Column("adapter_id", sa.String(128), nullable=False),
        sa.Column("aliases", sa.JSON(), nullable=False),
        sa.Column("moved", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("successor_id", sa.String(128)),
        sa.Column("updated_at_s", sa.Float(), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("requests_per_day", sa.Float(), nullable=False),
        sa.Column("aliases_left", sa.Integer(), nullable=False),
        sa.Column("aliases_moved", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("migration_id", "adapter_id", name="pk_migration_items"),
        sa.ForeignKeyConstraint(
            ["migration_id"], ["migrations.migration_id"], name="fk_migration_items_migration_id_migrations"
        ),
        sa.ForeignKeyConstraint(["adapter_id"], ["adapters.adapter_id"], name="fk_migration_items_adapter_id_adapters"),
    )
    op.create_index("ix_migration_items_state", "migration_items", ["migration_id", "state", "adapter_id"])
    op.create_index("ix_migration_items_adapter_id", "migration_items", ["adapter_id"])
