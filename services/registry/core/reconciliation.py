"""What must be written to make a bucket equal to the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")
Key = tuple[str, ...]


class Repair(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    puts: tuple[tuple[Key, V], ...]
    deletes: tuple[Key, ...]


def repair(wanted: Mapping[Key, V], found: Mapping[Key, V]) -> Repair[V]:
    """Puts for what is missing or different, deletes for what is not wanted; nothing for what is right."""
    puts = tuple((key, value) for key, value in sorted(wanted.items(), key=_key) if found.get(key) != value)
    return Repair(puts=puts, deletes=tuple(sorted(set(found) - set(wanted))))


def _key(item: tuple[Key, V]) -> Key:
    return item[0]
