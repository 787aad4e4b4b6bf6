"""Adapters as the registry keeps them."""

from __future__ import annotations

from services.registry.core import lifecycle, records
from services.registry.core.files.verify import FileFacts
from services.registry.core.records import StoredAdapter
from shared.messages.adapters import AdapterRegistered
from shared.messages.desired import BaseModelRecord
from tests.support.adapter_files import BASE


def verified(announced: AdapterRegistered, base: BaseModelRecord = BASE) -> StoredAdapter:
    """At second 1, with a file of 10 bytes."""
    kept = records.registered(announced, lifecycle.begin(None, 1.0, 600.0))
    found = records.content(announced, base, FileFacts(size_bytes=10), "adapters/x.safetensors")
    return records.accepted(kept, announced, found, lifecycle.verify("every check passed", 1.0, 600.0))
