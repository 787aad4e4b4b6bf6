"""Whether this replica warms: looked at with every report."""

from __future__ import annotations

from collections.abc import Callable

from services.replica_worker.core.assignment import Assignment
from services.replica_worker.core.warming import Slots, WarmPolicy, WarmUp, looked
from services.replica_worker.means import Means
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Warmth:
    """Begins when the replica serves for the first time."""

    def __init__(self, means: Means, policy: WarmPolicy, assignment: Callable[[], Assignment]) -> None:
        self._by = means
        self._policy = policy
        self._assignment = assignment
        self._warm_up: WarmUp | None = None

    def look(self, now_s: float) -> WarmUp:
        """As of now; over for one that does not serve, which says so itself."""
        if not self._by.standing.ready:
            return WarmUp(since_s=now_s, over=True)
        before = self._warm_up or WarmUp(since_s=now_s)
        found = self._warm_up = looked(before, self._assignment(), self._slots(now_s), now_s, self._policy)
        if found.over and not before.over:
            _log.info("the replica is warm", reason=found.reason, after_s=round(now_s - found.since_s, 1))
        return found

    def _slots(self, now_s: float) -> Slots:
        table, failures = self._by.loader.slots.table, self._by.loader.failures
        free = table.count - len(table.resident)
        return Slots(is_resident=table.is_resident, free=free, failed=failures.blocked(now_s))
