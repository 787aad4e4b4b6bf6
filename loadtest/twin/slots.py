"""The slots of one replica: loads over one serial link, and the proof of each by a probe in the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection

from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.links import Link
from loadtest.twin.tiers import Then, Tiers
from services.replica_worker.core.slot import Place, SlotState
from services.replica_worker.core.slot_decisions import AllBusy, MustLoad
from services.replica_worker.core.slots import SlotTable
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey


class Slots:
    """`on_change` is told of every adapter that came into a slot or left one, `on_freed` that a slot may be free."""

    def __init__(self, count: int, link: Link, agenda: Agenda, tiers: Tiers, batch: Batch) -> None:
        self.table = SlotTable(count)
        self.empty = count
        self.on_change: Callable[[AdapterKey], None] = _nobody
        self.on_freed: Callable[[], None] = lambda: None
        self._link = link
        self._agenda = agenda
        self._tiers = tiers
        self._batch = batch
        self._unproven: set[int] = set()
        """Slots whose load no probe has proven."""
        self._proving: set[int] = set()
        """Those of them for which one is on its way."""
        self._loading: set[int] = set()
        self._quietly: set[int] = set()
        """Slots whose load and proof nobody waits for: they hold a reference of their own."""

    def adopt(self, record: AdapterRecord) -> None:
        """Have it in an empty slot, proven, as a replica that was here before does."""
        reserved = self.table.acquire_free(record.key, self._agenda.now_s)
        if isinstance(reserved, MustLoad):
            self.empty -= 1
            self.table.finish_load(reserved.slot, self._agenda.now_s)
            self.table.release(reserved.slot, record.key, self._agenda.now_s)

    def proven(self, slot: int) -> bool:
        return slot not in self._unproven

    def load(self, record: AdapterRecord, slot: int, then: Then) -> None:
        """Into this empty or idle slot, for those who wait. `then` is told how it ended, the slot empty if not well."""
        self._begin(record, self.table.load_into(slot, record.key, self._agenda.now_s), then)

    def load_quietly(self, record: AdapterRecord, then: Callable[[bool], None]) -> None:
        """Into an empty slot, with its proof; `then` is told whether there was one."""

        def held(why: str) -> None:
            acquired = AllBusy(reason=why) if why else self.table.acquire_free(record.key, self._agenda.now_s)
            if isinstance(acquired, AllBusy):
                then(False)
            elif isinstance(acquired, MustLoad):
                self._quietly.add(acquired.slot)
                self._begin(record, acquired, lambda why: self._loaded_quietly(record, acquired.slot, why, then))
            else:
                self.table.release(acquired.slot, record.key, self._agenda.now_s)
                then(True)

        self._tiers.hold_in_ram(record, held)

    def busy(self, used: Collection[int]) -> int:
        """Slots with a load, a proof or requests on them; `used` are those with requests. What the table finds by
        looking at every slot."""
        return len(self._loading.union(self._quietly, self._proving, used))

    def own_references(self, place: Place) -> int:
        """Besides those of requests: of a load under way, of a proof, and of who wants it loaded for nobody."""
        if place.state is SlotState.LOADING:
            return 1
        return (place.slot in self._proving) + (place.slot in self._quietly)

    def _loaded_quietly(self, record: AdapterRecord, slot: int, why: str, then: Callable[[bool], None]) -> None:
        if why:
            self._quietly.discard(slot)
            then(False)
            return
        self.table.retain(slot)

        def proven() -> None:
            self._quietly.discard(slot)
            self.release(slot, record.key)
            then(True)

        self.prove(slot, record.key, proven)

    def prove(self, slot: int, key: AdapterKey, then: Callable[[], None] = lambda: None) -> None:
        """With the first request for what is in it, or alone. The slot keeps its adapter until the probe is in."""
        if slot not in self._unproven or slot in self._proving:
            then()
            return
        self._proving.add(slot)
        self.table.retain(slot)

        def done() -> None:
            self._forget_proof(slot)
            self.table.release(slot, key, self._agenda.now_s)
            self.on_freed()
            then()

        self._batch.probe(done)

    def _forget_proof(self, slot: int) -> None:
        self._unproven.discard(slot)
        self._proving.discard(slot)

    def release(self, slot: int, key: AdapterKey) -> None:
        self.table.release(slot, key, self._agenda.now_s)

    def vacate(self, key: AdapterKey) -> bool:
        """Clear the slot of an idle adapter at once; False if it is in use."""
        slot = self.table.vacate(key)
        if isinstance(slot, int):
            self._forget_proof(slot)
            self.table.finish_clear(slot)
            self.empty += 1
            self.on_change(key)
            self.on_freed()
        return slot is None or isinstance(slot, int)

    def _begin(self, record: AdapterRecord, reserved: MustLoad, then: Then) -> None:
        slot = reserved.slot
        if reserved.evict is None:
            self.empty -= 1
        else:
            self.on_change(reserved.evict)
        self._forget_proof(slot)
        self._unproven.add(slot)
        self._loading.add(slot)
        self._tiers.hold_in_ram(record, lambda why: self._copy(record, slot, why, then))

    def _copy(self, record: AdapterRecord, slot: int, why: str, then: Then) -> None:
        if why:
            self.table.fail_load(slot)
            self._loading.discard(slot)
            self._forget_proof(slot)
            self.empty += 1
            then(why)
            self.on_freed()
            return
        unpin = self._tiers.pin(record.key)
        over_s = self._link.take(self._agenda.now_s, record.size_bytes)
        self._agenda.at(over_s, self._copied, record, slot, unpin, then)

    def _copied(self, record: AdapterRecord, slot: int, unpin: Callable[[], None], then: Then) -> None:
        unpin()
        self.table.finish_load(slot, self._agenda.now_s)
        self._loading.discard(slot)
        self.on_change(record.key)
        self.table.release(slot, record.key, self._agenda.now_s)
        then("")
        self.on_freed()


def _nobody(key: AdapterKey) -> None:
    """Until somebody listens."""
