"""A migration between two base models, and one adapter in it, as a test wants them."""

from __future__ import annotations

from typing import Any

import msgspec

from services.registry.core.base_migration.move_items import Item
from services.registry.core.base_migration.moves import Migration
from tests.support.adapter_files import BASE

OLD, NEW = BASE, msgspec.structs.replace(BASE, base_model_hash="cd" * 32, name="new-base")


def migration(**said: Any) -> Migration:
    given_: dict[str, Any] = {
        "migration_id": "m1", "from_base_model_hash": OLD.base_model_hash, "to_base_model_hash": NEW.base_model_hash,
        "state": "running", "reason": "", "gpu_hours_each": 0.5, "cost_per_gpu_hour": 2.5, "created_at_s": 0.0,
        "updated_at_s": 0.0,
    }  # fmt: skip
    return Migration(**{**given_, **said})


def item(state: str = "planned", **said: Any) -> Item:
    return Item(
        **{"migration_id": "m1", "adapter_id": "v1", "tenant_id": "acme", "reason": "", "updated_at_s": 0.0, **said},
        state=state,
    )
