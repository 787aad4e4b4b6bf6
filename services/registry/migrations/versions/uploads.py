"""Uploads, which lie at their final place before an adapter was verified with them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "uploads",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("going_until_s", sa.Float()),
        sa.PrimaryKeyConstraint("digest", name="pk_uploads"),
    )
    op.create_index("ix_uploads_at_s", "uploads", ["at_s"])
    op.create_index("ix_adapters_checksum", "adapters", ["checksum"])


def downgrade() -> None:
    op.drop_index("ix_adapters_checksum", "adapters")
    op.drop_table("uploads")
