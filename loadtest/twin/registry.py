"""What the registry says of adapters: every part of the fleet hears it at once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from loadtest.twin.book import Book
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey


class Registry:
    """`leaving` are adapters that nobody expects to be asked for any more. `listen` to be told of every change."""

    def __init__(self, book: Book) -> None:
        self.records: dict[AdapterKey, AdapterRecord] = {}
        self.leaving: set[AdapterKey] = set()
        self.changes = 0
        self._book = book
        self._listeners: list[Callable[[], None]] = []

    def listen(self, on_change: Callable[[], None]) -> None:
        self._listeners.append(on_change)

    def register(self, adapter: int) -> AdapterRecord:
        record = self._book.record(adapter)
        self.records = {**self.records, record.key: record}
        self._changed()
        return record

    def register_all(self, adapters: range) -> None:
        made = [self._book.record(adapter) for adapter in adapters]
        self.records = {**self.records, **{record.key: record for record in made}}
        self._changed()

    def leave(self, adapter: int) -> None:
        """Its alias has moved on: from now on nobody wants it, though requests may still run."""
        record = msgspec.structs.replace(self._book.record(adapter), wanted=False)
        self.records = {**self.records, record.key: record}
        self.leaving.add(record.key)
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        for tell in self._listeners:
            tell()
