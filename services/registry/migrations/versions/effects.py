"""What adapters do, by engine build. Rows from before have none: replicas measure those themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TABLES = ("adapters", "evaluations")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("effects", sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "effects")
