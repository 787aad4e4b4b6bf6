"""A replica's figures, as its reports have them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from loadtest.twin.agenda import Agenda
from loadtest.twin.scenario import BASE_HASH
from services.replica_worker.core.tokens import Rate
from services.replica_worker.core.warming import Slots, WarmPolicy, WarmUp, looked
from shared.messages.reports import ReplicaReport

if TYPE_CHECKING:
    from loadtest.twin.replica import Replica


_WARM = WarmPolicy()


class Reporter:
    def __init__(self, replica: Replica, agenda: Agenda) -> None:
        self._replica = replica
        self._agenda = agenda
        self._speed = Speed()
        self._warm_up = WarmUp(since_s=agenda.now_s)
        self._sequence = 0

    def report(self) -> ReplicaReport:
        replica, now_s = self._replica, self._agenda.now_s
        body, table, batch = replica.body, replica.slots.table, replica.batch
        self._sequence += 1
        warm_up = self._look_how_warm()
        return ReplicaReport(
            replica_id=body.replica_id, incarnation=body.incarnation, pool_id=body.pool_id,
            base_model_hash=BASE_HASH, sequence=self._sequence, ready=not replica.not_ready, reason=replica.not_ready,
            draining=replica.draining, rank_limit=body.rank_limit, engine="timed", engine_build="twin",
            max_rows=body.batch.max_rows, slots=table.count, running=len(batch.rows.running),
            slots_busy=replica.slots.busy(replica.dispatcher.turns.used_slots),
            queue_depth=replica.waiting + _without_cache(replica),
            tokens_in_flight=replica.promises.total, tokens_per_s=self._speed.look(batch.tokens, now_s),
            evictions_per_min=table.turnover.evictions_per_min(now_s),
            loads_per_min=table.turnover.loads_per_min(now_s),
            ram_bytes=replica.tiers.ram.used_bytes, ram_budget_bytes=body.ram_bytes,
            disk_bytes=replica.tiers.disk.used_bytes, disk_budget_bytes=body.disk_bytes,
            assignment_epoch=replica.convergence.assignment.epoch, weight=body.weight, golden="unchecked",
            queued_tokens=replica.dispatcher.turns.queued_tokens,
            capacity_tokens_per_s=batch.learnt.tokens_per_s(batch.shape.max_rows),
            kv_used_tokens=batch.rows.kv_used_tokens, kv_total_tokens=batch.rows.kv_total_tokens,
            warming=not (warm_up.over or replica.not_ready), to_warm=warm_up.to_come,
        )  # fmt: skip

    def _look_how_warm(self) -> WarmUp:
        """Once it is over, no look says anything else."""
        if self._warm_up.over:
            return self._warm_up
        table = self._replica.slots.table
        slots = Slots(is_resident=table.is_resident, free=table.count - len(table.resident))
        assignment = self._replica.convergence.assignment
        self._warm_up = looked(self._warm_up, assignment, slots, self._agenda.now_s, _WARM)
        return self._warm_up


class Speed:
    """A rate that fades, told of a count that rises steadily between two looks rather than at each step."""

    def __init__(self) -> None:
        self._rate = Rate()
        self._tokens = 0
        self._at_s = 0.0

    def look(self, tokens: int, now_s: float) -> float:
        """Tokens a second at this moment, of a count that has come to `tokens`."""
        passed = (now_s - self._at_s) * math.log(2) / self._rate.half_life_s
        if tokens > self._tokens and passed > 0:
            self._rate.add((tokens - self._tokens) * (1.0 - math.exp(-passed)) / passed, now_s)
        self._tokens, self._at_s = tokens, now_s
        return self._rate.per_s(now_s)


def _without_cache(replica: Replica) -> int:
    """Requests in the engine for which there is a row, and no room in its KV cache."""
    without_row = max(0, len(replica.dispatcher.turns.handed) - replica.body.batch.max_rows)
    return max(0, len(replica.batch.rows.waiting) - without_row)
