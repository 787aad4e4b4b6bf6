"""Who comes before whom, among those who wait and against those who run."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from services.replica_worker.core.dispatch_view import DispatchPolicy, DispatchView, Waiting
from shared.messages.identity import AdapterKey

Line = deque[Waiting]
"""Those of one customer that want one adapter, in the order of arrival: only the first of them can be next. Paused
ones are a line of their own."""


def lines_of(waiting: Iterable[Waiting]) -> list[Line]:
    lines: dict[tuple[str, AdapterKey | None, bool], Line] = {}
    for each in waiting:
        lines.setdefault((each.tenant_id, each.key, each.paused), deque()).append(each)
    return list(lines.values())


class Order:
    """Counters as they will be once the decision is applied."""

    def __init__(self, view: DispatchView, policy: DispatchPolicy) -> None:
        self._view = view
        self._policy = policy
        self._counters = {tenant_id: share.counter for tenant_id, share in view.shares.items()}
        self._waiting = {each.tenant_id for each in view.waiting}
        self._least = self._least_of_waiting()
        self._turned: set[AdapterKey | None] = set()
        """Adapters that got a turn in this decision: none of them is passed over any more."""

    def charge(self, first: Waiting) -> None:
        """It has its turn."""
        self._counters[first.tenant_id] += first.tokens / self._view.shares[first.tenant_id].weight
        self._least = self._least_of_waiting()
        self._turned.add(first.key)

    def rank(self, first: Waiting, *, spared: bool) -> tuple[float, ...]:
        """The smallest is next. `spared`: no load is needed for it. Whose answer has begun can wait a little."""
        if self.is_aged(first):
            return (0, first.passed_over_since_s)
        counter = self._counters[first.tenant_id]
        near = counter <= self._least + self._policy.window_tokens
        return (1, not near, first.paused, not (near and spared), counter, first.passed_over_since_s)

    def is_aged(self, first: Waiting) -> bool:
        waited_s = self._view.now_s - first.passed_over_since_s
        if first.paused:  # its answer has begun: neither a debt nor others' turns make the gap in it longer
            return waited_s >= self._policy.round_s
        if first.key in self._turned:
            return False
        in_debt = self._counters[first.tenant_id] > self._least + self._policy.debt_tokens
        return waited_s >= self._policy.age_bound_s and not in_debt

    def least_of(self, waiting: Collection[Waiting]) -> float | None:
        """What the one of them has had that had the least; None if nobody comes before them, whatever it has had."""
        if any(each.paused or self.is_aged(each) for each in waiting):
            return None
        return min(self._counters[each.tenant_id] for each in waiting)

    def comes_before(self, first: Waiting, least: float) -> bool:
        """By so much that a slot may be taken for it from those who have had `least`."""
        return self.is_aged(first) or self._counters[first.tenant_id] + self._policy.window_tokens < least

    def may_stop(self, first: Waiting, slot: int) -> bool:
        """Whoever has had clearly more than those who run on a slot does not stop them, unless it is aged."""
        return self.is_aged(first) or self._counters[first.tenant_id] <= self.served(slot) + self._policy.window_tokens

    def served(self, slot: int) -> float:
        """What the one that had the least of those on a slot has had."""
        return min(self._counters[tenant_id] for tenant_id in self._view.pausable[slot])

    def why(self, first: Waiting) -> str:
        if self.is_aged(first):
            return f"passed over for {self._view.now_s - first.passed_over_since_s:.1f} s"
        near = self._counters[first.tenant_id] - self._least
        return "its customer has had the least" if near <= 0 else f"its customer is {near:.0f} tokens from the least"

    def _least_of_waiting(self) -> float:
        return min((self._counters[tenant_id] for tenant_id in self._waiting), default=0.0)
