"""Which slot another adapter can be given: one that nobody uses, or one whose requests can be paused."""

from __future__ import annotations

from collections.abc import Iterable

from services.replica_worker.core.dispatch_order import Line, Order
from services.replica_worker.core.dispatch_view import DispatchPolicy, DispatchView, Waiting
from services.replica_worker.core.slot import Place, SlotState
from shared.messages.identity import AdapterKey


class Room:
    """Slots as they will be once the decision is applied. What does not depend on who asks is found once for all of
    those who ask: hundreds may wait, and the event loop that decides also streams."""

    def __init__(self, view: DispatchView, policy: DispatchPolicy, order: Order, lines: Iterable[Line]) -> None:
        self._view = view
        self._policy = policy
        self._order = order
        self._lines_of: dict[AdapterKey | None, list[Line]] = {}
        for line in lines:
            self._lines_of.setdefault(line[0].key, []).append(line)
        self._taken: set[int] = set()
        """Slots that this decision starts a request on, or gives to another adapter."""
        self._idle: list[tuple[Place, float | None]] | None = None

    @property
    def any_free(self) -> bool:
        return any(place.state is SlotState.EMPTY or place.idle for place in self._untaken())

    @property
    def any_to_pause(self) -> bool:
        return any(place.slot in self._view.pausable for place in self._untaken())

    def take(self, place: Place) -> None:
        self._taken.add(place.slot)
        self.look_again()

    def look_again(self) -> None:
        """Counters have moved, or somebody waits no more."""
        self._idle = None

    def free_for(self, first: Waiting) -> tuple[Place | None, str]:
        """An empty slot; else the longest idle that nobody waits for; else one whose adapter others wait for, but
        only if those come later anyway: two customers at the same point do not take slots from each other."""
        empty = next((place for place in self._untaken() if place.state is SlotState.EMPTY), None)
        if empty is not None:
            return empty, "empty slot"
        if self._idle is None:
            self._idle = self._idle_first_to_go()
        for place, least in self._idle:
            if least is None:
                return place, f"evicts {name_of(place)}, idle the longest"
            if self._order.comes_before(first, least):
                return place, f"evicts {name_of(place)}, whose turn comes later"
        return None, ""

    def paused_for(self, first: Waiting) -> Place | None:
        """The slot whose customers have had the most, of those that have had their time."""
        can = [place for place in self._untaken() if self._can_be_paused(place, first)]
        most = self._order.served
        return max(can, key=lambda each: (each.closing, most(each.slot), -each.ready_since_s), default=None)

    def paused_for_operation(self) -> Place | None:
        """The slot that was closed for it, if its requests can be paused."""
        return next((each for each in self._untaken() if each.closing and each.slot in self._view.pausable), None)

    def _untaken(self) -> Iterable[Place]:
        return (place for place in self._view.places if place.slot not in self._taken)

    def _idle_first_to_go(self) -> list[tuple[Place, float | None]]:
        """With what the one has had that had the least of those who wait for it, None if nobody does. Those that
        nobody may take are left out."""
        idle = [place for place in self._untaken() if place.idle]
        unwanted: list[tuple[Place, float | None]] = []
        wanted: list[tuple[Place, float | None]] = []
        for place in sorted(idle, key=lambda place: (not place.closing, place.last_used_s)):
            waiting = [line[0] for line in self._lines_of.get(place.key, ()) if line]
            if not waiting or (place.closing and not any(each.paused for each in waiting)):
                unwanted.append((place, None))
            elif (least := self._order.least_of(waiting)) is not None:
                wanted.append((place, least))
        return unwanted + wanted

    def _can_be_paused(self, place: Place, first: Waiting) -> bool:
        if place.slot not in self._view.pausable or (place.closing and operation_is_late(self._view, self._policy)):
            return False
        quantum_s = self._policy.round_s if first.paused else self._policy.quantum_s
        over = self._view.now_s - place.ready_since_s >= quantum_s
        # Whom a slot was closed for is aged. Others would take it from each other every step.
        due = over or (place.closing and self._order.is_aged(first))
        return due and self._order.may_stop(first, place.slot)


def operation_is_late(view: DispatchView, policy: DispatchPolicy) -> bool:
    return view.operation_since_s is not None and view.now_s - view.operation_since_s >= policy.age_bound_s


def name_of(place: Place) -> str:
    return place.key.adapter_id if place.key else "nothing"
