"""Run by Alembic inside the transaction that the registry has begun."""

from __future__ import annotations

from alembic import context

from services.registry.io import evaluation_tables, migration_tables, tables, usage_tables  # noqa: F401
from services.registry.io.schema import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
