"""How much a tenant, and each key of it, may ask for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TABLES = ("tenants", "api_keys")
_LIMITS = ("requests_per_min", "tokens_per_min", "streams")


def upgrade() -> None:
    for table in _TABLES:
        for limit in _LIMITS:
            op.add_column(table, sa.Column(limit, sa.BigInteger()))


def downgrade() -> None:
    for table in _TABLES:
        for limit in _LIMITS:
            op.drop_column(table, limit)
