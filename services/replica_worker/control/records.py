"""The adapters that exist, as the registry says, held in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from shared.bus.port import Change
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey

UNUSABLE = frozenset({"rejected", "failed"})
RETIRED = UNUSABLE | {"retired"}


class RecordBook:
    """Folds the watch of the adapter bucket. `on_change` is told every adapter whose record came, changed
    or went."""

    def __init__(self, on_change: Callable[[AdapterKey], None]) -> None:
        self._on_change = on_change
        self._by_hash: dict[str, AdapterRecord] = {}
        self._by_key: dict[AdapterKey, AdapterRecord] = {}
        self._by_digest: dict[str, frozenset[AdapterKey]] = {}
        self._gone: frozenset[AdapterKey] = frozenset()
        self._leaving: set[AdapterKey] = set()
        self.changes = 0
        """How often anything here has changed."""
        self._arrivals: dict[AdapterKey, list[asyncio.Future[AdapterRecord]]] = {}

    async def on_record(self, change: Change[AdapterRecord]) -> None:
        (adapter_hash,) = change.ids
        before = self._by_hash.pop(adapter_hash, None)
        if before is not None and (change.value is None or change.value.key != before.key):
            self._forget(before.key)
        if change.value is not None:
            self._by_hash[adapter_hash] = change.value
            self._learn(change.value)

    def get(self, key: AdapterKey) -> AdapterRecord | None:
        return self._by_key.get(key)

    def is_retired(self, key: AdapterKey) -> bool:
        """Nothing may newly ask for it; also if its record is gone, or never came."""
        record = self._by_key.get(key)
        return record is None or record.status in RETIRED

    async def wait_for(self, key: AdapterKey) -> AdapterRecord:
        """The record as soon as it is known; the caller bounds the wait."""
        if (record := self._by_key.get(key)) is not None:
            return record
        arrival: asyncio.Future[AdapterRecord] = asyncio.get_running_loop().create_future()
        self._arrivals.setdefault(key, []).append(arrival)
        try:
            return await arrival
        finally:
            waiting = self._arrivals.get(key, [])
            if arrival in waiting:
                waiting.remove(arrival)
            if not waiting:
                self._arrivals.pop(key, None)

    def keys_of(self, digest: str) -> frozenset[AdapterKey]:
        """Every adapter with these bytes."""
        return self._by_digest.get(digest, frozenset())

    def of(self, keys: Iterable[AdapterKey]) -> dict[AdapterKey, AdapterRecord]:
        """The records of those that have one."""
        return {key: self._by_key[key] for key in keys if key in self._by_key}

    def leaving(self, keys: Iterable[AdapterKey]) -> frozenset[AdapterKey]:
        """Those that nothing may newly ask for or that nobody is expected to, and all whose record is gone."""
        return self._gone.union(self._leaving.intersection(keys))

    def forget_gone(self, is_held: Callable[[AdapterKey], bool]) -> frozenset[AdapterKey]:
        """Adapters whose record is gone are remembered until nothing of them `is_held`; returns the others."""
        held = frozenset(filter(is_held, self._gone))
        forgotten, self._gone = self._gone - held, held
        return forgotten

    def _learn(self, record: AdapterRecord) -> None:
        self.changes += 1
        (self._leaving.add if _is_leaving(record) else self._leaving.discard)(record.key)
        self._by_key[record.key] = record
        self._by_digest[record.digest] = self.keys_of(record.digest) | {record.key}
        self._gone -= {record.key}
        for arrival in self._arrivals.pop(record.key, []):
            if not arrival.done():
                arrival.set_result(record)
        self._on_change(record.key)

    def _forget(self, key: AdapterKey) -> None:
        self.changes += 1
        self._leaving.discard(key)
        self._by_key.pop(key, None)
        if others := self.keys_of(key.digest) - {key}:
            self._by_digest[key.digest] = others
        else:
            self._by_digest.pop(key.digest, None)
        self._gone |= {key}
        self._on_change(key)


def _is_leaving(record: AdapterRecord) -> bool:
    return record.status in RETIRED or not record.wanted
