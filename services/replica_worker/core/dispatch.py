"""Whose turn it is: which requests to start or to pause, which adapters to load, which slot to close.

An adapter that was passed over for too long comes first. Then the customer with the smallest counter, where those
within a small window of it are taken in an order that spares loads. While requests run, the adapters of those who
come next are loaded into slots that nobody needs; if every slot is in use, into one whose requests are paused.
"""

from __future__ import annotations

from collections import Counter, deque

from services.replica_worker.core.dispatch_closing import Closing
from services.replica_worker.core.dispatch_order import Line, Order, lines_of
from services.replica_worker.core.dispatch_room import Room, name_of, operation_is_late
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
        self._lines = lines_of(view.waiting)
        self._room = Room(view, policy, self._order, self._lines)
        self._away = {line[0].key for line in self._lines if line[0].paused} - set(self._place_of)
        """Adapters that had to leave their slot in the middle of an answer."""
        self._start: list[Start] = []
        self._pause: list[Pause] = []
        self._load: list[Load] = []
        self._waits: Counter[str] = Counter()

    def decide(self) -> Dispatch:
        self._fill_rows()
        self._pause_for_operation()
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
        rows = self._view.free_rows
        in_turn = deque(sorted(self._lines, key=self._rank)) if rows > 0 else deque()
        while rows > 0 and in_turn:
            line = in_turn.popleft()
            first = line[0]
            if self._is_open(first.key):
                self._begin(first)
            elif first.key in self._coming or self._claim(first):
                self._waits["load"] += 1
            else:
                continue
            rows -= 1
            self._order.charge(first)
            self._room.look_again()
            line.popleft()
            # The counters have moved: but no more than `rows` others have their turn now, so no more are looked at.
            ahead = ([line] if line else []) + [in_turn.popleft() for _ in range(min(rows, len(in_turn)))]
            in_turn.extendleft(sorted(ahead, key=self._rank, reverse=True))
        self._lines = [line for line in self._lines if line]

    def _load_ahead(self) -> None:
        """First into slots that are free, for whoever comes first; then into those that can be made free."""
        if not self._link_is_free() or not (self._room.any_free or self._room.any_to_pause):
            return
        without = [line[0] for line in self._lines if line[0].key is not None and line[0].key not in self._place_of]
        in_turn = sorted(without, key=lambda first: self._order.rank(first, spared=False))
        for make_room in (self._claim, self._claim_by_pause):
            for first in in_turn:
                if not self._link_is_free():
                    return
                make_room(first)

    def _pause_for_operation(self) -> None:
        """It takes the slot by itself as soon as nobody is on it; without a pause it would wait for whole answers."""
        if not operation_is_late(self._view, self._policy) or len(self._away) >= len(self._view.places):
            return
        place = self._room.paused_for_operation()
        if place is not None:
            self._pause.append(Pause(slot=place.slot, reason=f"{name_of(place)} makes room for an operation"))
            self._room.take(place)
            self._away.add(place.key)

    def _link_is_free(self) -> bool:
        return len(self._load) + self._view.loads_in_flight < self._policy.loads_at_once

    def _close(self) -> tuple[int | None, str]:
        without = [line[0] for line in self._lines if line[0].key not in self._place_of]
        return Closing(self._view, self._policy, self._order).choose(without, {load.slot for load in self._load})

    def _begin(self, first: Waiting) -> None:
        if first.key is not None:
            self._room.take(self._place_of[first.key])
        self._start.append(Start(request_id=first.request_id, reason=self._order.why(first)))

    def _claim(self, first: Waiting) -> bool:
        """Give its adapter a slot, if it has none and one can be had for it."""
        if first.key is None or first.key in self._place_of:
            return False
        place, why = self._room.free_for(first)
        if place is None:
            return False
        self._give(place, first.key, why)
        return True

    def _claim_by_pause(self, first: Waiting) -> None:
        """The same, from those who run. Paused adapters are never more than the slots: so long is a round."""
        if first.key is None or first.key in self._place_of:
            return
        if len(self._away - {first.key}) >= len(self._view.places):
            return
        place = self._room.paused_for(first)
        if place is None:
            return
        self._pause.append(Pause(slot=place.slot, reason=f"{name_of(place)} makes room for {first.key.adapter_id}"))
        self._away = (self._away | {place.key}) - {first.key}
        self._give(place, first.key, f"its turn, instead of {name_of(place)}")

    def _give(self, place: Place, key: AdapterKey, why: str) -> None:
        self._room.take(place)
        if place.key is not None:
            del self._place_of[place.key]
        if self._link_is_free():
            self._load.append(Load(key=key, slot=place.slot, reason=why))
        self._place_of[key] = place
        self._coming.add(key)

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
