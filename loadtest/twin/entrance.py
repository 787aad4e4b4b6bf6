"""Whether a replica lets a request in: the worker's own decision, with what it depends on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from loadtest.twin.ground import Ground
from loadtest.twin.request import Attempt
from loadtest.twin.scenario import BASE_HASH
from services.replica_worker.core.admission import PATIENCE, Door, Refusal, admit, given_up
from services.replica_worker.core.pace import TurnedAway
from services.replica_worker.core.row_pace import Forecast, before
from services.replica_worker.core.tokens import LONGEST_RETRY_S
from shared.messages.generation import GenerateRequest, Sampling
from shared.messages.identity import AdapterKey

if TYPE_CHECKING:
    from loadtest.twin.replica import Replica

DEADLINE_S = 60.0
TICK_S = 0.1
_SAMPLING = Sampling(seed=0)


class Entrance:
    def __init__(self, replica: Replica, ground: Ground) -> None:
        self._replica = replica
        self._ground = ground
        self._turned_away = TurnedAway()
        self._without_row = TurnedAway(longest_s=LONGEST_RETRY_S)
        self._objective_s = ground.scenario.ttft_objective_s if ground.scenario.sheds else 0.0

    def refusal_of(self, attempt: Attempt) -> Refusal | None:
        """None: it may come in. Its `tier` is known by now."""
        to_fetch = self._to_fetch(attempt.request.record.key) if attempt.tier == "remote" else []
        forecast = self._forecast(attempt) if self._objective_s else None
        refusal = admit(_question(attempt, self._objective_s), self._door(to_fetch, forecast))
        if to_fetch and refusal is not None and refusal.code == "overloaded":
            self._turned_away.add(self._replica.tiers.pace.wait_s(to_fetch[0]), self._ground.agenda.now_s)
        elif forecast is not None and refusal is not None and attempt.request.attempts == 1:
            self._without_row.add(forecast.row_s, self._ground.agenda.now_s)
        return refusal

    def watch(self, attempt: Attempt) -> None:
        """It was let in: it waits no longer than its patience lasts."""
        if self._objective_s:
            self._ground.agenda.after(PATIENCE * self._objective_s, self._look_at, attempt)

    def _look_at(self, attempt: Attempt) -> None:
        if attempt.over or attempt.turn_at_s is not None or not self._replica.alive:
            return
        now_s = self._ground.agenda.now_s
        waited_s, retry_s = now_s - (attempt.in_line_at_s or now_s), self._without_row.wait_s(now_s)
        refusal = given_up(self._objective_s, waited_s, self._free_rows, retry_s)
        if refusal is None:
            self._ground.agenda.after(TICK_S, self._look_at, attempt)
        else:
            self._replica.send_away(attempt, refusal)

    @property
    def _free_rows(self) -> int:
        return self._replica.body.batch.max_rows - len(self._replica.dispatcher.turns.handed)

    def _forecast(self, attempt: Attempt) -> Forecast | None:
        replica, batch, turns = self._replica, self._replica.batch, self._replica.dispatcher.turns
        free_rows = self._free_rows
        if replica.waiting < free_rows:
            return None
        max_rows, table = batch.shape.max_rows, replica.slots.table
        if not batch.learnt.has_seen(max_rows):
            return None
        others = (each for each in replica.open if each not in turns.handed)
        waiting = Counter(each.tenant for each in others if each.key is None or table.has_slot(each.key))
        tokens_per_s = batch.learnt.tokens_per_s(max_rows)
        first = before(waiting, turns.weight, attempt.request.record.tenant_id)
        return replica.row_pace.forecast(first, free_rows, max_rows, tokens_per_s)

    def _door(self, to_fetch: list[int], forecast: Forecast | None) -> Door:
        replica, body = self._replica, self._replica.body
        return Door(
            pool_id=body.pool_id,
            base_model_hash=BASE_HASH,
            only=body.merged,
            not_ready=replica.not_ready,
            draining=replica.draining,
            waiting=replica.waiting,
            fetch_wait_s=replica.tiers.pace.wait_s(sum(to_fetch[1:])) if to_fetch else 0.0,
            turned_away_wait_s=self._turned_away.wait_s(self._ground.agenda.now_s),
            queue_limit=body.queue_limit,
            tokens_in_flight=replica.promises.total,
            tokens_per_s=0.0,
            forecast=forecast,
            comers_wait_s=self._without_row.wait_s(self._ground.agenda.now_s),
        )

    def _to_fetch(self, key: AdapterKey) -> list[int]:
        """The sizes of its adapter and of all that others wait for; nothing if it is on its way already."""
        replica = self._replica
        coming = {each.request.record.key: each.request.record.size_bytes for each in replica.fetching}
        coming = {other: size for other, size in coming.items() if replica.tier_of(other) == "remote"}
        record = self._ground.registry.records.get(key)
        return [] if key in coming or record is None else [record.size_bytes, *coming.values()]


def _question(attempt: Attempt, objective_s: float) -> GenerateRequest:
    """As far as a door looks at it."""
    record = attempt.request.record
    return GenerateRequest(
        request_id=attempt.id,
        gateway_id="",
        tenant_id=record.tenant_id,
        pool_id=attempt.pool_id,
        base_model_hash=record.base_model_hash,
        messages=(),
        sampling=_SAMPLING,
        adapter_id=record.adapter_id,
        digest=record.digest,
        deadline_s=DEADLINE_S,
        objective_s=objective_s,
    )
