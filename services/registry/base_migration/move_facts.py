"""What pipelines and the console are told about a migration, as notes for the outbox of the same transaction."""

from __future__ import annotations

from services.registry.core.base_migration.move_items import Item
from services.registry.core.base_migration.moves import Migration
from services.registry.core.records import StoredAdapter
from services.registry.io.notes import Note, fact
from shared.contracts import catalog
from shared.messages.migrations import MigrationMoved, RetrainRequested


def migration_moved(migration: Migration) -> Note:
    return fact(
        catalog.MIGRATION_MOVED,
        MigrationMoved(
            migration_id=migration.migration_id,
            adapter_id="",
            state=migration.state,
            reason=migration.reason,
            actor=migration.actor,
            at_s=migration.updated_at_s,
        ),
    )


def item_moved(item: Item, actor: str = "") -> Note:
    return fact(
        catalog.MIGRATION_MOVED,
        MigrationMoved(
            migration_id=item.migration_id,
            adapter_id=item.adapter_id,
            state=item.state,
            reason=item.reason,
            actor=actor,
            at_s=item.updated_at_s,
        ),
    )


def retrain_requested(migration: Migration, item: Item, adapter: StoredAdapter) -> Note:
    announced = adapter.announced
    return fact(
        catalog.ADAPTER_RETRAIN_REQUESTED,
        RetrainRequested(
            migration_id=migration.migration_id,
            adapter_id=item.adapter_id,
            tenant_id=item.tenant_id,
            from_base_model_hash=migration.from_base_model_hash,
            to_base_model_hash=migration.to_base_model_hash,
            rank=announced.rank,
            alpha=announced.alpha,
            target_modules=announced.target_modules,
            aliases=item.aliases,
            dataset_uri=announced.dataset_uri,
            gpu_hours=migration.gpu_hours_each,
        ),
    )
