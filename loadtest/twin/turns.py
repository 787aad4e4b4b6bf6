"""Who waits for a turn on one replica, who has one, and how much each customer has had."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from loadtest.twin.batch import Batch
from loadtest.twin.request import Attempt
from loadtest.twin.slots import Slots
from services.replica_worker.core.dispatch_view import DispatchView, Share, Waiting
from services.replica_worker.core.fairness import TokenCounters
from services.replica_worker.core.slot import Place
from shared.messages.identity import AdapterKey

ROWS_PER_SPARE = 16
"""For so many rows one request more is in the engine."""


class Turns:
    """Customers are charged for what their requests produced when somebody is about to look at their counters."""

    def __init__(self, batch: Batch, slots: Slots) -> None:
        self.waiting: dict[str, Attempt] = {}
        self.handed: dict[Attempt, None] = {}
        self._of_tenant: defaultdict[str, dict[Attempt, None]] = defaultdict(dict)
        """Those handed, by customer."""
        self.loading: set[AdapterKey] = set()
        self._used: Counter[int] = Counter()
        """How many of those handed are on each slot."""
        self._rows = batch.shape.max_rows + batch.shape.max_rows // ROWS_PER_SPARE
        self._counters = TokenCounters()
        self._paused: Counter[AdapterKey] = Counter()
        self._batch = batch
        self._slots = slots

    @property
    def awaited(self) -> Collection[AdapterKey]:
        """Adapters that paused answers go on with, whenever that is looked at."""
        return self._paused.keys()

    @property
    def free_rows(self) -> int:
        return self._rows - len(self.handed)

    def weight(self, tenant: str) -> float:
        return self._counters.weight(tenant)

    @property
    def queued_tokens(self) -> int:
        return sum(each.promised - self._batch.produced(each) for each in self.waiting.values())

    @property
    def used_slots(self) -> Collection[int]:
        return self._used.keys()

    def wait(self, attempt: Attempt, now_s: float) -> None:
        self.settle()
        attempt.passed_over_since_s = now_s
        if attempt.paused and attempt.record is not None:
            self._paused[attempt.record.key] += 1
        self.waiting[attempt.id] = attempt
        self._counters.enter(attempt.tenant)

    def pass_through(self, attempt: Attempt) -> None:
        """It waits, and at once no more: nobody was before it."""
        for other in self._of_tenant.get(attempt.tenant, ()):
            self._charge(other)
        self._counters.enter(attempt.tenant)
        self._counters.leave(attempt.tenant)

    def give_up(self, attempt: Attempt) -> None:
        """It waits no more. Idempotent."""
        if self.waiting.pop(attempt.id, None) is None:
            return
        if attempt.paused and attempt.record is not None:
            self._paused[attempt.record.key] -= 1
            if not self._paused[attempt.record.key]:
                del self._paused[attempt.record.key]
        self._counters.leave(attempt.tenant)

    def hand(self, attempt: Attempt, now_s: float) -> None:
        """It has its turn: whoever waits for the same adapter is not passed over, unless its answer stands still."""
        self.handed[attempt] = self._of_tenant[attempt.tenant][attempt] = None
        attempt.turn_at_s = now_s if attempt.turn_at_s is None else attempt.turn_at_s
        if attempt.slot is not None:
            self._used[attempt.slot] += 1
        for other in self.waiting.values():
            if not other.paused and other.key == attempt.key:
                other.passed_over_since_s = now_s
        if not attempt.paused:
            self._counters.charge(attempt.tenant, attempt.prompt_tokens)

    def take(self, attempt: Attempt) -> None:
        """Its turn is over. Idempotent."""
        if attempt in self.handed:
            self._charge(attempt)
            del self.handed[attempt]
            del self._of_tenant[attempt.tenant][attempt]
            if not self._of_tenant[attempt.tenant]:
                del self._of_tenant[attempt.tenant]
            if attempt.slot is not None:
                self._used[attempt.slot] -= 1
                if not self._used[attempt.slot]:
                    del self._used[attempt.slot]

    def settle(self) -> None:
        """Charge customers with what their requests have produced up to now."""
        for attempt in self.handed:
            self._charge(attempt)

    def view(self, now_s: float) -> DispatchView:
        places = self._slots.table.places()
        waiting = tuple(_as_waiting(each) for each in self.waiting.values())
        pausable = self._pausable(places)
        tenants = {each.tenant_id for each in waiting}.union(*pausable.values())
        return DispatchView(
            now_s=now_s,
            free_rows=self.free_rows,
            loads_in_flight=len(self.loading),
            places=places,
            waiting=waiting,
            shares={each: Share(self._counters.of(each), self._counters.weight(each)) for each in tenants},
            pausable=pausable,
        )

    def _charge(self, attempt: Attempt) -> None:
        produced = self._batch.produced(attempt)
        if produced > attempt.charged:
            self._counters.charge(attempt.tenant, produced - attempt.charged)
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
        key=attempt.key,
        tokens=0 if attempt.paused else attempt.prompt_tokens,
        passed_over_since_s=attempt.passed_over_since_s,
        paused=attempt.paused,
    )
