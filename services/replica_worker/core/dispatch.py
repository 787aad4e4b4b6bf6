"""Whose turn it is: which requests to start, which adapters to load, which slot to close.

An adapter that was passed over for too long comes first. Then the customer with the smallest counter, where those
within a small window of it are taken in an order that spares loads. While requests run, the adapters of those who
come next are loaded into slots that nobody needs.
"""

from __future__ import annotations

from collections import Counter, deque

from services.replica_worker.core.dispatch_view import (
    Dispatch,
    DispatchPolicy,
    DispatchView,
    Load,
    Start,
    Waiting,
)
from services.replica_worker.core.slot import Place, SlotState
from shared.messages.identity import AdapterKey

_Line = deque[Waiting]
"""Those of one customer that want one adapter, in the order of arrival: only the first of them can be next."""


def next_batch(view: DispatchView, policy: DispatchPolicy) -> Dispatch:
    """Never more distinct adapters in slots than there are slots: a load is given a slot that nobody uses, and a
    request starts only on an adapter that is there."""
    return _Round(view, policy).decide()


class _Round:
    """One decision: counters and slots as they will be once it is applied."""

    def __init__(self, view: DispatchView, policy: DispatchPolicy) -> None:
        self._view = view
        self._policy = policy
        self._counters = {tenant_id: share.counter for tenant_id, share in view.shares.items()}
        self._least = min(self._counters.values(), default=0.0)
        self._place_of = {place.key: place for place in view.places if place.key is not None}
        self._coming: set[AdapterKey] = {
            place.key for place in view.places if place.key is not None and place.state is SlotState.LOADING
        }
        self._taken: set[int] = set()
        """Slots that this decision starts a request on, or gives to another adapter."""
        self._turned: set[AdapterKey | None] = set()
        """Adapters that got a turn in this decision: none of them is passed over any more."""
        self._lines = _lines(view.waiting)
        self._start: list[Start] = []
        self._load: list[Load] = []
        self._waits: Counter[str] = Counter()

    def decide(self) -> Dispatch:
        self._fill_rows()
        self._load_ahead()
        closed, why = self._close()
        for line in self._lines:
            self._waits[self._what_for(line[0].key)] += len(line)
        return Dispatch(
            start=tuple(self._start), load=tuple(self._load), closed=closed, closed_reason=why, waits=dict(self._waits)
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
            self._charge(first)
            line.popleft()
            if not line:
                self._lines.remove(line)
        self._lines += stuck

    def _load_ahead(self) -> None:
        for line in sorted(self._lines, key=lambda line: self._rank(line, sparing_loads=False)):
            if len(self._load) + self._view.loads_in_flight >= self._policy.loads_at_once:
                return
            self._claim(line[0])

    def _close(self) -> tuple[int | None, str]:
        """One slot is closed as long as somebody has waited too long for one. The slot that is closed stays the same
        until it is idle."""
        who = self._in_need()
        if not who:
            return None, "nobody waits too long for a slot"
        ready = [place for place in self._view.places if self._can_be_closed(place)]
        chosen = min(ready, key=lambda place: (not place.closing, place.references, place.last_used_s), default=None)
        if chosen is None:
            return None, "no slot can be closed"
        return chosen.slot, f"slot {chosen.slot} takes nothing new: {who} waits too long for a slot"

    def _can_be_closed(self, place: Place) -> bool:
        if place.state is not SlotState.READY:
            return False
        return bool(place.references) and place.slot not in {load.slot for load in self._load}

    def _in_need(self) -> str:
        """Who waits too long for a slot that is not even on its way; "" if nobody does."""
        firsts = [line[0] for line in self._lines]
        needy = [each for each in firsts if each.key and each.key not in self._place_of and self._is_aged(each)]
        if needy:
            first = min(needy, key=lambda each: each.passed_over_since_s)
            return first.key.adapter_id if first.key else ""
        since_s = self._view.operation_since_s
        late = since_s is not None and self._view.now_s - since_s >= self._policy.age_bound_s
        return "an operation" if late else ""

    def _charge(self, first: Waiting) -> None:
        self._counters[first.tenant_id] += first.tokens / self._view.shares[first.tenant_id].weight
        self._least = min(self._counters.values())
        self._turned.add(first.key)

    def _begin(self, first: Waiting) -> None:
        if first.key is not None:
            self._taken.add(self._place_of[first.key].slot)
        self._start.append(Start(request_id=first.request_id, reason=self._why(first)))

    def _claim(self, first: Waiting) -> bool:
        """Give its adapter a slot, if it has none and one can be had for it."""
        if first.key is None or first.key in self._place_of:
            return False
        place, why = self._victim(first)
        if place is None:
            return False
        self._taken.add(place.slot)
        if place.key is not None:
            del self._place_of[place.key]
        if len(self._load) + self._view.loads_in_flight < self._policy.loads_at_once:
            self._load.append(Load(key=first.key, slot=place.slot, reason=why))
        self._place_of[first.key] = place
        self._coming.add(first.key)
        return True

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
        later = [place for place in idle if self._comes_before(first, place)]
        return (later[0], f"evicts {_name(later[0])}, whose turn comes later") if later else (None, "")

    def _comes_before(self, first: Waiting, place: Place) -> bool:
        others = [line[0] for line in self._lines if line[0].key == place.key]
        if any(self._is_aged(each) for each in others):
            return False
        least = min(self._counters[each.tenant_id] for each in others)
        return self._is_aged(first) or self._counters[first.tenant_id] + self._policy.window_tokens < least

    def _rank(self, line: _Line, *, sparing_loads: bool = True) -> tuple[float, ...]:
        first = line[0]
        if self._is_aged(first):
            return (0, first.passed_over_since_s)
        counter = self._counters[first.tenant_id]
        near = sparing_loads and counter <= self._least + self._policy.window_tokens
        spared = near and self._is_open(first.key)
        return (1, not near, not spared, counter, first.passed_over_since_s)

    def _is_aged(self, first: Waiting) -> bool:
        waited_s = self._view.now_s - first.passed_over_since_s
        if waited_s < self._policy.age_bound_s or first.key in self._turned:
            return False
        return self._counters[first.tenant_id] <= self._least + self._policy.debt_tokens

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

    def _why(self, first: Waiting) -> str:
        if self._is_aged(first):
            return f"passed over for {self._view.now_s - first.passed_over_since_s:.1f} s"
        near = self._counters[first.tenant_id] - self._least
        return "its customer has had the least" if near <= 0 else f"its customer is {near:.0f} tokens from the least"


def _lines(waiting: tuple[Waiting, ...]) -> list[_Line]:
    lines: dict[tuple[str, AdapterKey | None], _Line] = {}
    for each in waiting:
        lines.setdefault((each.tenant_id, each.key), deque()).append(each)
    return list(lines.values())


def _name(place: Place) -> str:
    return place.key.adapter_id if place.key else "nothing"
