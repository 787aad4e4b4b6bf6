"""Whose turn it is on one replica: the worker's own decision, applied in virtual time.

`next_batch` decides. It is not asked where its answer is known without it: a request for a resident adapter, with a row
free and nobody before it, starts; and while all who wait have their adapters in slots and no row is free, or only those
whose loads are under way wait, nothing happens. `tests/simulation/test_twin_short_cuts.py` compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.request import Attempt
from loadtest.twin.slots import Slots
from loadtest.twin.turns import Turns
from services.replica_worker.core.dispatch import next_batch
from services.replica_worker.core.dispatch_view import Dispatch, DispatchPolicy, Load
from services.replica_worker.core.slot_decisions import Resident
from shared.messages.identity import AdapterKey

TICK_S = 0.1

OnRefused = Callable[[Attempt, str], None]


class Dispatcher:
    """`on_refused` is told of those whose adapter could not be had. `fast` false: every decision is asked for."""

    def __init__(
        self, policy: DispatchPolicy, agenda: Agenda, batch: Batch, slots: Slots, on_refused: OnRefused
    ) -> None:
        self.turns = Turns(batch, slots)
        self.waits: Mapping[str, int] = {}
        """How many waited for what at the last decision."""
        self.fast = True
        self.alive = True
        self.decisions = 0
        self._policy = policy
        self._agenda = agenda
        self._batch = batch
        self._slots = slots
        self._on_refused = on_refused
        self._due = self._ticking = False
        self._closed: int | None = None
        """The slot that was closed last; it may have been opened since."""
        slots.table.awaited = self.turns.awaited

    def enter(self, attempt: Attempt) -> None:
        """A request whose adapter is in RAM or higher, or that needs none."""
        attempt.in_line_at_s = self._agenda.now_s
        if self._starts_at_once(attempt):
            self.turns.pass_through(attempt)
            self._begin(attempt)
        else:
            self.turns.wait(attempt, self._agenda.now_s)
            self.wake()

    def leave(self, attempt: Attempt) -> None:
        """It has ended, wherever it was. Idempotent."""
        if attempt.id in self.turns.waiting:
            self.turns.settle()
            self._take_out(attempt)
        self.turns.take(attempt)
        self._give_back(attempt)
        self.wake()

    def wake(self) -> None:
        """Decide once for all that happens at this moment."""
        if not self._due and self.turns.waiting and self.alive:
            self._due = True
            self._agenda.soon(self.decide)

    def decide(self) -> None:
        self._due = False
        if not self.turns.waiting or not self.alive:
            return
        if self.fast and self._is_quiet():
            self.waits = {"row": len(self.turns.waiting)}
        else:
            self.turns.settle()
            self.decisions += 1
            self._apply(next_batch(self.turns.view(self._agenda.now_s), self._policy))
        self._batch.step_by_step(bool(self.waits.get("slot")))
        if not self._ticking and self.turns.waiting:
            self._ticking = True
            self._agenda.after(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self.wake()

    def _starts_at_once(self, attempt: Attempt) -> bool:
        if not self.fast or self.turns.waiting or self.turns.free_rows <= 0:
            return False
        return attempt.key is None or (self._slots.table.is_resident(attempt.key) and self._all_open)

    def _is_quiet(self) -> bool:
        free, table = self.turns.free_rows > 0, self._slots.table
        for each in self.turns.waiting.values():
            if each.key is not None and not table.has_slot(each.key):
                return False
            if free and (each.key is None or table.is_resident(each.key)):
                return False
        return self._all_open

    @property
    def _all_open(self) -> bool:
        if self._closed is not None:
            self._closed = self._slots.table.closed
        return self._closed is None

    def _apply(self, decided: Dispatch) -> None:
        self.waits = decided.waits
        for start in decided.start:
            attempt = self.turns.waiting[start.request_id]
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
        if attempt.key is not None:
            acquired = self._slots.table.acquire(attempt.key, self._agenda.now_s)
            assert isinstance(acquired, Resident), acquired.reason
            attempt.slot = acquired.slot
        self.turns.hand(attempt, self._agenda.now_s)
        attempt.paused, attempt.begun = False, True
        if attempt.slot is not None and attempt.key is not None:
            self._slots.prove(attempt.slot, attempt.key)
        self._batch.submit(attempt)

    def _pause(self, slot: int) -> None:
        for attempt in [each for each in self.turns.handed if each.slot == slot]:
            self.turns.take(attempt)
            self._batch.withdraw(attempt)
            attempt.paused, attempt.moving = True, False
            self.turns.wait(attempt, self._agenda.now_s)
            self._give_back(attempt)

    def _load(self, load: Load) -> None:
        if not self._slots.table.can_load(load.slot, load.key):
            return
        record = next(each.record for each in self.turns.waiting.values() if each.record and each.key == load.key)
        self.turns.loading.add(load.key)
        self._slots.load(record, load.slot, lambda why: self._loaded(load.key, why))

    def _loaded(self, key: AdapterKey, why: str) -> None:
        self.turns.loading.discard(key)
        for attempt in [each for each in self.turns.waiting.values() if why and each.key == key]:
            self._on_refused(attempt, why)
        self.wake()

    def _give_back(self, attempt: Attempt) -> None:
        if attempt.slot is not None and attempt.key is not None:
            slot, attempt.slot = attempt.slot, None
            self._slots.release(slot, attempt.key)

    def _take_out(self, attempt: Attempt) -> None:
        self.turns.give_up(attempt)
        if not self.turns.waiting:
            self.waits = {}
            self._batch.step_by_step(False)
