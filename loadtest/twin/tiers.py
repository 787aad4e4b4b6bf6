"""Store, disk and RAM of one replica: byte budgets, one flight for each adapter, and a serial link for each hop."""

from __future__ import annotations

from collections.abc import Callable

from loadtest.twin.agenda import Agenda
from loadtest.twin.links import Gate, Link, Shelf
from loadtest.twin.timing import Timing
from services.replica_worker.core.pace import Pace
from services.replica_worker.core.tiers import ByteBudget, NoRoom
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey

FETCHES_AT_ONCE = 4
READS_AT_ONCE = 2

Then = Callable[[str], None]
"""Told how it ended: "" is well."""


class Tiers:
    """`on_change` is told of every adapter that came to disk or RAM, or left one of them."""

    def __init__(
        self, ram_bytes: int, disk_bytes: int, timing: Timing, agenda: Agenda, on_change: Callable[[AdapterKey], None]
    ) -> None:
        self.disk: ByteBudget[str] = ByteBudget(disk_bytes)
        self.ram: ByteBudget[AdapterKey] = ByteBudget(ram_bytes)
        self.store_link = Link(timing.store_bytes_per_s, timing.store_latency_s)
        self.pace = Pace(timing.store_bytes_per_s)
        self._disk_link = Link(timing.disk_bytes_per_s, timing.disk_latency_s)
        self._agenda = agenda
        self._on_change = on_change
        self._disk_shelf, self._ram_shelf = Shelf(self.disk), Shelf(self.ram)
        self._fetching, self._reading = Gate(FETCHES_AT_ONCE), Gate(READS_AT_ONCE)
        self._flights: dict[object, list[Then]] = {}
        self._key_of: dict[str, AdapterKey] = {}

    def adopt(self, record: AdapterRecord, tier: str) -> None:
        """Have it at once, as a replica that was here before does. Nothing happens where there is no room."""
        self._key_of[record.digest] = record.key
        if isinstance(self.disk.adopt(record.digest, record.size_bytes, self._agenda.now_s), NoRoom) or tier == "disk":
            return
        self.ram.adopt(record.key, record.size_bytes, self._agenda.now_s)

    def hold_in_ram(self, record: AdapterRecord, then: Then) -> None:
        if self.ram.holds(record.key):
            self.ram.touch(record.key, self._agenda.now_s)
            then("")
        elif self._joins(record.key, then):
            self.hold_on_disk(record, lambda why: self._read(record, why))

    def hold_on_disk(self, record: AdapterRecord, then: Then) -> None:
        self._key_of[record.digest] = record.key
        if self.disk.holds(record.digest):
            self.disk.touch(record.digest, self._agenda.now_s)
            then("")
        elif self._joins(record.digest, then):
            self._fetching.enter(lambda: self._make_room_on_disk(record))

    def pin(self, key: AdapterKey) -> Callable[[], None]:
        """While it is copied to a slot it stays, if it is here at all. Returns what ends that."""
        if not self.ram.holds(key):
            return lambda: None
        self.ram.pin(key)

        def unpin() -> None:
            self.ram.unpin(key)
            self._ram_shelf.moved()

        return unpin

    def drop(self, key: AdapterKey) -> bool:
        """Forget it in both tiers; False if something uses it."""
        if self.ram.in_use(key) or self.disk.in_use(key.digest) or key in self._flights or key.digest in self._flights:
            return False
        if self.ram.holds(key):
            self.ram.drop(key)
        if self.disk.counts(key.digest):
            self.disk.drop(key.digest)
        self._on_change(key)
        return True

    @property
    def all_in_use(self) -> frozenset[AdapterKey]:
        on_disk = (self._key_of[digest] for digest in self.disk.all_in_use)
        return self.ram.all_in_use.union(on_disk)

    def in_use(self, key: AdapterKey) -> bool:
        """It is among `all_in_use`."""
        return self.ram.in_use(key) or (self._key_of.get(key.digest) == key and self.disk.in_use(key.digest))

    @property
    def files(self) -> dict[str, AdapterKey]:
        """What is on disk, by digest."""
        return {digest: self._key_of[digest] for digest in self.disk.held}

    def _joins(self, name: object, then: Then) -> bool:
        """True for the first who asks: the flight is for it to begin."""
        flight = self._flights.get(name)
        if flight is not None:
            flight.append(then)
            return False
        self._flights[name] = [then]
        return True

    def _land(self, name: object, why: str) -> None:
        for then in self._flights.pop(name):
            then(why)

    def _now(self) -> float:
        return self._agenda.now_s

    # -- from the store to disk ------------------------------------------------------------------------

    def _make_room_on_disk(self, record: AdapterRecord) -> None:
        self._disk_shelf.reserve(record.digest, record.size_bytes, self._now, lambda room: self._fetch(record, room))

    def _fetch(self, record: AdapterRecord, room: tuple[str, ...] | str) -> None:
        if isinstance(room, str):
            self._fetching.leave()
            self._land(record.digest, room)
            return
        for digest in room:
            self._on_change(self._key_of[digest])
        self.pace.began(self._agenda.now_s)
        over_s = self.store_link.take(self._agenda.now_s, record.size_bytes)
        self._agenda.at(over_s, self._fetched, record)

    def _fetched(self, record: AdapterRecord) -> None:
        self.pace.ended(record.size_bytes, self._agenda.now_s)
        self.disk.arrived(record.digest, record.size_bytes, self._agenda.now_s)
        self._fetching.leave()
        self._disk_shelf.moved()
        self._on_change(record.key)
        self._land(record.digest, "")

    # -- from disk to RAM ------------------------------------------------------------------------------

    def _read(self, record: AdapterRecord, why: str) -> None:
        if why:
            self._land(record.key, why)
        else:
            self._reading.enter(lambda: self._make_room_in_ram(record))

    def _make_room_in_ram(self, record: AdapterRecord) -> None:
        self._ram_shelf.reserve(record.key, record.size_bytes, self._now, lambda room: self._copy(record, room))

    def _copy(self, record: AdapterRecord, room: tuple[AdapterKey, ...] | str) -> None:
        if isinstance(room, str) or not self.disk.holds(record.digest):
            if not isinstance(room, str):
                self.ram.drop(record.key)
            self._reading.leave()
            self._land(record.key, room if isinstance(room, str) else "its file was evicted before it could be read")
            return
        for key in room:
            self._on_change(key)
        self.disk.pin(record.digest)
        self._agenda.at(self._disk_link.take(self._agenda.now_s, record.size_bytes), self._copied, record)

    def _copied(self, record: AdapterRecord) -> None:
        self.disk.unpin(record.digest)
        self._disk_shelf.moved()
        self.ram.arrived(record.key, record.size_bytes, self._agenda.now_s)
        self._reading.leave()
        self._ram_shelf.moved()
        self._on_change(record.key)
        self._land(record.key, "")
