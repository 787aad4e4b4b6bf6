"""Whose turn it is: which requests to start or to pause, which adapters to load, which slot to close.

An adapter that was passed over for too long comes first. Then the customer with the smallest counter, where those
within a small window of it are taken in an order that spares loads. While requests run, the adapters of those who
come next are loaded into slots that nobody needs; if every slot is in use, into one whose requests are paused.
"""

from __future__ import annotations

from collections import Counter

from services.replica_worker.core.dispatch_closing import Closing
from services.replica_worker.core.dispatch_order import Line, Order, lines_of
from services.replica_worker.core.dispatch_view import (
    Dispatch,
    DispatchPolicy,
    DispatchView,
    Load,
    Pause,
    Start,
    Waiting,
)
from services.replica_worker.core.slot import Place, SlotState
from shared.messages.identity import AdapterKey


def next_batch(view: DispatchView, policy: DispatchPolicy) -> Dispatch:
    """Never more distinct adapters in slots than there are slots: a load is given a slot that nobody uses any more,
    and a request starts only on an adapter that is there."""
    return _Round(view, policy).decide()


class _Round:
    """One decision: slots as they will be once it is applied."""

    def __init__(self, view: DispatchView, policy: DispatchPolicy) -> None:
        self._view = view
        self._policy = policy
        self._order = Order(view, policy)
        self._place_of = {place.key: place for place in view.places if place.key is not None}
        self._coming: set[AdapterKey] = {
            place.key for place in view.places if place.key is not None and place.state is SlotState.LOADING
        }
        self._taken: set[int] = set()
        """Slots that this decision starts a request on, or gives to another adapter."""
        self._lines = lines_of(view.waiting)
        self._away = {line[0].key for line in self._lines if line[0].paused} - set(self._place_of)
        """Adapters that had to leave their slot in the middle of an answer."""
        self._start: list[Start] = []
        self._pause: list[Pause] = []
        self._load: list[Load] = []
        self._waits: Counter[str] = Counter()

    def decide(self) -> Dispatch:
        self._fill_rows()
        self._load_ahead()
        closed, why = self._close()
        for line in self._lines:
            self._waits[self._what_for(line[0].key)] += len(line)
        return Dispatch(
            start=tuple(self._start),
            pause=tuple(self._pause),
            load=tuple(self._load),
            closed=closed,
            closed_reason=why,
            waits=dict(self._waits),
        )

    def _fill_rows(self) -> None:
        """A row is kept for a request whose adapter is on its way: otherwise those behind it would take every row
        for the length of an answer, and a load would be repaid by a wait."""
        rows, stuck = self._view.free_rows, []
        while rows > 0 and self._lines:
            line = min(self._lines, key=self._rank)
            first = line[0]
            if self._is_open(first.key):
                self._begin(first)
            elif first.key in self._coming or self._claim(first):
                self._waits["load"] += 1
            else:
                self._lines.remove(line)
                stuck.append(line)
                continue
            rows -= 1
            self._order.charge(first)
            line.popleft()
            if not line:
                self._lines.remove(line)
        self._lines += stuck

    def _load_ahead(self) -> None:
        """First into slots that are free, for whoever comes first; then into those that can be made free."""
        in_turn = sorted(self._lines, key=lambda line: self._order.rank(line[0], spared=False))
        for make_room in (self._claim, self._claim_by_pause):
            for line in in_turn:
                if not self._link_is_free():
                    return
                make_room(line[0])

    def _link_is_free(self) -> bool:
        return len(self._load) + self._view.loads_in_flight < self._policy.loads_at_once

    def _close(self) -> tuple[int | None, str]:
        without = [line[0] for line in self._lines if line[0].key not in self._place_of]
        return Closing(self._view, self._policy, self._order).choose(without, {load.slot for load in self._load})

    def _begin(self, first: Waiting) -> None:
        if first.key is not None:
            self._taken.add(self._place_of[first.key].slot)
        self._start.append(Start(request_id=first.request_id, reason=self._order.why(first)))

    def _claim(self, first: Waiting) -> bool:
        """Give its adapter a slot, if it has none and one can be had for it."""
        if first.key is None or first.key in self._place_of:
            return False
        place, why = self._victim(first)
        if place is None:
            return False
        self._give(place, first.key, why)
        return True

    def _claim_by_pause(self, first: Waiting) -> None:
        """The same, from those who run. Paused adapters are never more than the slots: so long is a round."""
        if first.key is None or first.key in self._place_of:
            return
        if not first.paused and len(self._away) >= len(self._view.places):
            return
        ready = [place for place in self._view.places if self._can_be_paused(place, first)]
        if not ready:
            return
        place = max(ready, key=lambda each: (each.closing, self._order.served(each.slot), -each.ready_since_s))
        self._pause.append(Pause(slot=place.slot, reason=f"{_name(place)} makes room for {first.key.adapter_id}"))
        self._away = (self._away | {place.key}) - {first.key}
        self._give(place, first.key, f"its turn, instead of {_name(place)}")

    def _can_be_paused(self, place: Place, first: Waiting) -> bool:
        if place.slot not in self._view.pausable or place.slot in self._taken:
            return False
        quantum_s = self._policy.round_s if first.paused else self._policy.quantum_s
        over = self._view.now_s - place.ready_since_s >= quantum_s
        return (over or place.closing) and self._order.may_stop(first, place.slot)

    def _give(self, place: Place, key: AdapterKey, why: str) -> None:
        self._taken.add(place.slot)
        if place.key is not None:
            del self._place_of[place.key]
        if self._link_is_free():
            self._load.append(Load(key=key, slot=place.slot, reason=why))
        self._place_of[key] = place
        self._coming.add(key)

    def _victim(self, first: Waiting) -> tuple[Place | None, str]:
        """An empty slot; else the longest idle that nobody waits for; else one whose adapter others wait for, but
        only if those come later anyway: two customers at the same point do not take slots from each other."""
        free = [place for place in self._view.places if place.slot not in self._taken]
        empty = next((place for place in free if place.state is SlotState.EMPTY), None)
        if empty is not None:
            return empty, "empty slot"
        idle = sorted((place for place in free if place.idle), key=lambda place: (not place.closing, place.last_used_s))
        wanted = {line[0].key for line in self._lines}
        for place in idle:
            if place.closing or place.key not in wanted:
                return place, f"evicts {_name(place)}, idle the longest"
        for place in idle:
            if self._order.comes_before_all(first, [line[0] for line in self._lines if line[0].key == place.key]):
                return place, f"evicts {_name(place)}, whose turn comes later"
        return None, ""

    def _rank(self, line: Line) -> tuple[float, ...]:
        return self._order.rank(line[0], spared=self._is_open(line[0].key))

    def _is_open(self, key: AdapterKey | None) -> bool:
        """A request for it could start at once."""
        if key is None:
            return True
        place = self._place_of.get(key)
        return place is not None and key not in self._coming and place.state is SlotState.READY and not place.closing

    def _what_for(self, key: AdapterKey | None) -> str:
        if self._is_open(key):
            return "row"
        return "load" if key in self._coming else "slot"


def _name(place: Place) -> str:
    return place.key.adapter_id if place.key else "nothing"
