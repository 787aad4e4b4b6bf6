"""Which slot takes nothing new, so that it becomes free for whoever has waited too long."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from services.replica_worker.core.dispatch_order import Order
from services.replica_worker.core.dispatch_room import operation_is_late
from services.replica_worker.core.dispatch_view import DispatchPolicy, DispatchView, Waiting
from services.replica_worker.core.slot import Place, SlotState


class Closing:
    def __init__(self, view: DispatchView, policy: DispatchPolicy, order: Order) -> None:
        self._view = view
        self._policy = policy
        self._order = order

    def choose(self, without_slot: Iterable[Waiting], given: Collection[int]) -> tuple[int | None, str]:
        """One slot is closed as long as somebody has waited too long for one. The slot that is closed stays the same
        until it is idle, or its requests can be paused. `given`: slots that get another adapter now anyway."""
        who = self._in_need(without_slot)
        if not who:
            return None, "nobody waits too long for a slot"
        ready = [place for place in self._view.places if _runs(place) and place.slot not in given]
        chosen = min(ready, key=lambda place: (not place.closing, place.references, place.last_used_s), default=None)
        if chosen is None:
            return None, "no slot can be closed"
        return chosen.slot, f"slot {chosen.slot} takes nothing new: {who} waits too long for a slot"

    def _in_need(self, without_slot: Iterable[Waiting]) -> str:
        """Who waits too long for a slot that is not even on its way; "" if nobody does."""
        needy = [each for each in without_slot if self._waits_too_long(each)]
        first = min(needy, key=lambda each: each.passed_over_since_s, default=None)
        if first is not None and first.key is not None:
            return first.key.adapter_id
        return "an operation" if operation_is_late(self._view, self._policy) else ""

    def _waits_too_long(self, first: Waiting) -> bool:
        """Those who are paused wait for a round anyway."""
        if first.key is None:
            return False
        extra_s = self._policy.round_s if first.paused else 0.0
        waited_s = self._view.now_s - first.passed_over_since_s - extra_s
        return waited_s >= self._policy.age_bound_s and self._order.is_aged(first)


def _runs(place: Place) -> bool:
    return place.state is SlotState.READY and place.references > 0
