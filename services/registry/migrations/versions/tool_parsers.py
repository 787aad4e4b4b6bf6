"""How a base's chat template has calls of tools written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("base_models", sa.Column("tool_parser", sa.String(64), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("base_models", "tool_parser")
