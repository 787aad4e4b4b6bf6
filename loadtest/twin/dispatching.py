"""Whose turn it is on one replica: the worker's own decision, applied in virtual time.

`next_batch` decides. It is not asked where its answer is known without it: a request for a resident adapter, with a row
free and nobody before it, starts; and while all who wait have their adapters in slots and no row is free, or only those
whose loads are under way wait, nothing happens. `tests/unit/twin/test_dispatching.py` compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.request import Attempt
from loadtest.twin.slots import Slots
from services.replica_worker.core.dispatch import next_batch
from services.replica_worker.core.dispatch_view import Dispatch, DispatchPolicy, DispatchView, Load, Share, Waiting
from services.replica_worker.core.fairness import TokenCounters
from services.replica_worker.core.slot import Place
from services.replica_worker.core.slot_decisions import Resident
from shared.messages.identity import AdapterKey

ROWS_PER_SPARE = 16
TICK_S = 0.1

OnRefused = Callable[[Attempt, str], None]


class Dispatcher:
    """`on_refused` is told of those whose adapter could not be had. `fast` false: every decision is asked for."""

    def __init__(
        self, policy: DispatchPolicy, agenda: Agenda, batch: Batch, slots: Slots, on_refused: OnRefused
    ) -> None:
        self.waiting: dict[str, Attempt] = {}
        self.handed: dict[Attempt, None] = {}
        self.loading: set[AdapterKey] = set()
        self.counters = TokenCounters()
        self.waits: dict[str, int] = {}
        self.fast = True
        self.alive = True
        self.decisions = 0
        self._rows = batch.shape.max_rows + batch.shape.max_rows // ROWS_PER_SPARE
        self._paused: Counter[AdapterKey] = Counter()
        self._policy = policy
        self._agenda = agenda
        self._batch = batch
        self._slots = slots
        self._on_refused = on_refused
        self._due = self._ticking = False
        self._closed: int | None = None
        """The slot that was closed last; it may have been opened since."""
        slots.table.awaited = self._paused.keys()

    @property
    def queued_tokens(self) -> int:
        return sum(each.promised - self._batch.produced(each) for each in self.waiting.values())

    @property
    def used_slots(self) -> set[int]:
        return {attempt.slot for attempt in self.handed if attempt.slot is not None}

    def enter(self, attempt: Attempt) -> None:
        """A request whose adapter is in RAM or higher, or that needs none."""
        attempt.passed_over_since_s = self._agenda.now_s
        if self._starts_at_once(attempt):
            self._settle(attempt.tenant)
            self.counters.enter(attempt.tenant)
            self.counters.leave(attempt.tenant)
            self._begin(attempt)
            return
        self._settle()
        self.waiting[attempt.id] = attempt
        self.counters.enter(attempt.tenant)
        self.wake()

    def leave(self, attempt: Attempt) -> None:
        """It has ended, wherever it was. Idempotent."""
        if attempt.id in self.waiting:
            self._settle()
            self._take_out(attempt)
        if attempt in self.handed:
            self._charge(attempt)
            del self.handed[attempt]
        self._give_back(attempt)
        self.wake()

    def wake(self) -> None:
        """Decide once for all that happens at this moment."""
        if not self._due and self.waiting and self.alive:
            self._due = True
            self._agenda.soon(self.decide)

    def decide(self) -> None:
        self._due = False
        if not self.waiting or not self.alive:
            return
        if self.fast and self._is_quiet():
            self.waits = {"row": len(self.waiting)}
        else:
            self._settle()
            self.decisions += 1
            self._apply(next_batch(self.view(), self._policy))
        self._batch.step_by_step(bool(self.waits.get("slot")))
        if not self._ticking and self.waiting:
            self._ticking = True
            self._agenda.after(TICK_S, self._tick)

    def view(self) -> DispatchView:
        places = self._slots.table.places()
        waiting = tuple(_as_waiting(each) for each in self.waiting.values())
        pausable = self._pausable(places)
        tenants = {each.tenant_id for each in waiting}.union(*pausable.values())
        return DispatchView(
            now_s=self._agenda.now_s,
            free_rows=self._rows - len(self.handed),
            loads_in_flight=len(self.loading),
            places=places,
            waiting=waiting,
            shares={each: Share(self.counters.of(each), self.counters.weight(each)) for each in tenants},
            pausable=pausable,
        )

    def _tick(self) -> None:
        self._ticking = False
        self.wake()

    def _starts_at_once(self, attempt: Attempt) -> bool:
        if not self.fast or self.waiting or len(self.handed) >= self._rows:
            return False
        table = self._slots.table
        return attempt.record is None or (table.is_resident(attempt.record.key) and self._all_open)

    def _is_quiet(self) -> bool:
        free, table = self._rows > len(self.handed), self._slots.table
        for each in self.waiting.values():
            key = None if each.record is None else each.record.key
            if key is not None and not table.has_slot(key):
                return False
            if free and (key is None or table.is_resident(key)):
                return False
        return self._all_open

    @property
    def _all_open(self) -> bool:
        if self._closed is not None:
            self._closed = self._slots.table.closed
        return self._closed is None

    def _apply(self, decided: Dispatch) -> None:
        self.waits = dict(decided.waits)
        for start in decided.start:
            attempt = self.waiting[start.request_id]
            self._take_out(attempt)
            self._begin(attempt)
        for pause in decided.pause:
            self._pause(pause.slot)
        for load in decided.load:
            self._load(load)
        if decided.closed != self._slots.table.closed:
            self._slots.table.close_only(decided.closed)
            self._closed = decided.closed
            self.wake()

    def _begin(self, attempt: Attempt) -> None:
        now_s, key = self._agenda.now_s, None
        if attempt.record is not None:
            key = attempt.record.key
            acquired = self._slots.table.acquire(key, now_s)
            assert isinstance(acquired, Resident), acquired.reason
            attempt.slot = acquired.slot
        self.handed[attempt] = None
        for other in self.waiting.values():
            if not other.paused and (None if other.record is None else other.record.key) == key:
                other.passed_over_since_s = now_s
        if not attempt.paused:
            self.counters.charge(attempt.tenant, attempt.prompt_tokens)
        attempt.paused, attempt.begun = False, True
        if attempt.slot is not None:
            self._slots.prove(attempt.slot)
        self._batch.submit(attempt)

    def _pause(self, slot: int) -> None:
        for attempt in [each for each in self.handed if each.slot == slot]:
            self._charge(attempt)
            del self.handed[attempt]
            self._batch.withdraw(attempt)
            attempt.paused, attempt.moving = True, False
            attempt.passed_over_since_s = self._agenda.now_s
            assert attempt.record is not None, "it was found by its slot"
            self._paused[attempt.record.key] += 1
            self.waiting[attempt.id] = attempt
            self.counters.enter(attempt.tenant)
            self._give_back(attempt)

    def _load(self, load: Load) -> None:
        if not self._slots.table.can_load(load.slot, load.key):
            return
        record = next(each.record for each in self.waiting.values() if each.record and each.record.key == load.key)
        self.loading.add(load.key)
        self._slots.load(record, load.slot, lambda why: self._loaded(load.key, why))

    def _loaded(self, key: AdapterKey, why: str) -> None:
        self.loading.discard(key)
        for attempt in list(self.waiting.values()) if why else ():
            if attempt.record is not None and attempt.record.key == key:
                self._on_refused(attempt, why)
        self.wake()

    def _give_back(self, attempt: Attempt) -> None:
        if attempt.slot is not None and attempt.record is not None:
            slot, attempt.slot = attempt.slot, None
            self._slots.release(slot, attempt.record.key)

    def _take_out(self, attempt: Attempt) -> None:
        del self.waiting[attempt.id]
        if attempt.paused and attempt.record is not None:
            self._paused[attempt.record.key] -= 1
            if not self._paused[attempt.record.key]:
                del self._paused[attempt.record.key]
        self.counters.leave(attempt.tenant)
        if not self.waiting:
            self.waits = {}
            self._batch.step_by_step(False)

    def _settle(self, tenant: str | None = None) -> None:
        """Charge customers with what their requests have produced up to now."""
        for attempt in self.handed if tenant is None else [each for each in self.handed if each.tenant == tenant]:
            self._charge(attempt)

    def _charge(self, attempt: Attempt) -> None:
        produced = self._batch.produced(attempt)
        if produced > attempt.charged:
            self.counters.charge(attempt.tenant, produced - attempt.charged)
            attempt.charged = produced

    def _pausable(self, places: tuple[Place, ...]) -> dict[int, frozenset[str]]:
        """Slots on which nothing but requests stand that have come further since they began, all of it proven."""
        by_slot: dict[int, list[Attempt]] = {}
        for attempt in self.handed:
            if attempt.slot is not None:
                by_slot.setdefault(attempt.slot, []).append(attempt)
        return {
            slot: frozenset(each.tenant for each in attempts)
            for slot, attempts in by_slot.items()
            if places[slot].references == len(attempts)
            and self._slots.proven(slot)
            and all(each.moving for each in attempts)
        }


def _as_waiting(attempt: Attempt) -> Waiting:
    return Waiting(
        request_id=attempt.id,
        tenant_id=attempt.tenant,
        key=None if attempt.record is None else attempt.record.key,
        tokens=0 if attempt.paused else attempt.prompt_tokens,
        passed_over_since_s=attempt.passed_over_since_s,
        paused=attempt.paused,
    )
