"""One replica: requests at its door, through its tiers, slots and engine, and what it says of itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.converging import Convergence
from loadtest.twin.dispatching import Dispatcher
from loadtest.twin.registry import Registry
from loadtest.twin.request import Attempt
from loadtest.twin.scenario import BASE_HASH, Scenario
from loadtest.twin.sequence import BatchShape, Sequence
from loadtest.twin.slots import Slots
from loadtest.twin.telling import Capacity, ResidencyTeller, Speed
from loadtest.twin.tiers import Tiers
from loadtest.twin.timing import MeasuredTable, StepTable
from loadtest.twin.wire import Wire
from services.replica_worker.core.admission import Door, Refusal, admit
from services.replica_worker.core.pace import TurnedAway
from services.replica_worker.core.residency import ResidencyLog
from services.replica_worker.core.tokens import Promises
from shared.contracts.catalog import REPLICA_REPORT
from shared.messages.desired import AssignmentShard
from shared.messages.generation import GenerateRequest, Sampling
from shared.messages.identity import AdapterKey
from shared.messages.reports import ReplicaReport

_DEADLINE_S = 60.0


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica is, and how large."""

    replica_id: str
    incarnation: str
    pool_id: str
    slots: int
    rank_limit: int
    ram_bytes: int
    disk_bytes: int
    queue_limit: int
    batch: BatchShape
    steps: StepTable | MeasuredTable
    weight: float = 1.0
    merged: AdapterKey | None = None


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What all replicas stand on. A gateway is told of a request's first token, of its end and of a refusal, at the
    moment when the replica sends them."""

    agenda: Agenda
    scenario: Scenario
    registry: Registry
    wire: Wire
    draw: random.Random
    on_first: Callable[[Attempt], None]
    on_ended: Callable[[Attempt], None]
    on_refused: Callable[[Attempt, Refusal], None]


class Replica:
    """`not_ready` is why it takes nothing, "" once it serves. A dead one does and says nothing any more."""

    def __init__(self, body: Body, ground: Ground) -> None:
        self.body = body
        self.alive, self.paused, self.draining, self.not_ready = True, False, False, ""
        self._inbox: list[tuple[Attempt, Callable[[Attempt], None]]] = []
        self.open: dict[Attempt, None] = {}
        self.promises = Promises()
        self.given_tokens = 0
        """Of requests that have left."""
        agenda, timing = ground.agenda, ground.scenario.timing
        self.batch = Batch(body.batch, body.steps, agenda, self._on_step, ground.draw)
        self.tiers = Tiers(body.ram_bytes, body.disk_bytes, timing, agenda, self._on_change)
        self.slots = Slots(body.slots, timing.slot_bytes_per_s, agenda, self.tiers, self.batch)
        self.dispatcher = Dispatcher(ground.scenario.dispatch, agenda, self.batch, self.slots, self._unavailable)
        self.convergence = Convergence(agenda, ground.registry, self.tiers, self.slots, self._awaited)
        self.slots.on_change, self.slots.on_freed = self._on_change, self.dispatcher.wake
        log = ResidencyLog(body.replica_id, body.incarnation, body.pool_id)
        self._teller = ResidencyTeller(log, ground.wire, agenda, self.tier_of)
        self._ground = ground
        self._agenda = agenda
        self._speed, self._capacity = Speed(), Capacity(body.batch.max_rows)
        self._turned_away = TurnedAway()
        self._fetching: dict[Attempt, None] = {}
        self._sequence = 0
        self.serves_only = body.merged

    # -- requests --------------------------------------------------------------------------------------

    def receive(self, attempt: Attempt, on_received: Callable[[Attempt], None]) -> None:
        """A request has come over the bus. While the process is paused it lies there."""
        if self.paused:
            self._inbox.append((attempt, on_received))
            return
        attempt.received, attempt.arrived_at_s = True, self._agenda.now_s
        attempt.incarnation = self.body.incarnation
        on_received(attempt)
        self.ask(attempt)

    def ask(self, attempt: Attempt) -> None:
        """May it come in?"""
        key = attempt.request.record.key
        attempt.tier = self.tier_of(key)
        to_fetch = self._to_fetch(key) if attempt.tier == "remote" else []
        refusal = admit(_question(attempt), self._door(to_fetch))
        if refusal is not None:
            if to_fetch and refusal.code == "overloaded":
                self._turned_away.add(self.tiers.pace.wait_s(to_fetch[0]), self._agenda.now_s)
            attempt.over = True
            self._ground.on_refused(attempt, refusal)
            return
        self.open[attempt] = None
        self.promises.make(attempt.id, attempt.promised)
        attempt.tenant = attempt.request.record.tenant_id
        if self.serves_only is None:
            attempt.record = attempt.request.record
        if attempt.record is None or attempt.tier == "gpu":
            self.dispatcher.enter(attempt)
        else:
            self._fetching[attempt] = None
            self.tiers.hold_in_ram(attempt.record, lambda why: self._fetched(attempt, why))

    def stop(self, attempt: Attempt) -> None:
        """Its gateway wants no more of it."""
        if attempt in self.open:
            self.batch.withdraw(attempt)
            self._end(attempt)

    def die(self) -> None:
        self.alive = self.batch.alive = self.dispatcher.alive = self.convergence.alive = False

    def pause(self, until_s: float) -> None:
        """Nothing moves and nothing is said until then; what comes meanwhile waits."""
        self.paused = True
        self.batch.hold(until_s)
        self._agenda.at(until_s, self._go_on)

    def _go_on(self) -> None:
        self.paused = False
        inbox, self._inbox = self._inbox, []
        for attempt, on_received in inbox:
            if attempt.request.attempt is attempt and self.alive:
                self.receive(attempt, on_received)

    def tier_of(self, key: AdapterKey) -> str:
        if key == self.serves_only or self.slots.table.is_resident(key):
            return "gpu"
        if self.tiers.ram.holds(key):
            return "ram"
        return "disk" if self.tiers.disk.holds(key.digest) else "remote"

    def _fetched(self, attempt: Attempt, why: str) -> None:
        del self._fetching[attempt]
        if attempt.over or not self.alive:
            return
        if why:
            self._unavailable(attempt, why)
        else:
            self.dispatcher.enter(attempt)

    def _unavailable(self, attempt: Attempt, why: str) -> None:
        self._end(attempt)
        self._ground.on_refused(attempt, Refusal(code="adapter_unavailable", reason=f"{why}.", elsewhere=True))

    def _on_step(self, first: list[Sequence], ended: list[Sequence]) -> None:
        for attempt in first:
            assert isinstance(attempt, Attempt), "nobody else submits here"
            attempt.moving = True
            self._ground.on_first(attempt)
        for attempt in ended:
            assert isinstance(attempt, Attempt), "nobody else submits here"
            self._end(attempt)
            self._ground.on_ended(attempt)
        if self.dispatcher.waits.get("slot"):
            self.dispatcher.wake()

    def _end(self, attempt: Attempt) -> None:
        attempt.over = True
        self.given_tokens += self.batch.produced(attempt)
        del self.open[attempt]
        self.promises.end(attempt.id)
        self.dispatcher.leave(attempt)

    def _door(self, to_fetch: list[int]) -> Door:
        now_s, body = self._agenda.now_s, self.body
        return Door(
            pool_id=body.pool_id,
            base_model_hash=BASE_HASH,
            only=self.serves_only,
            not_ready=self.not_ready,
            draining=self.draining,
            waiting=self.waiting,
            fetch_wait_s=self.tiers.pace.wait_s(sum(to_fetch[1:])) if to_fetch else 0.0,
            turned_away_wait_s=self._turned_away.wait_s(now_s),
            queue_limit=body.queue_limit,
            tokens_in_flight=self.promises.total,
            tokens_per_s=0.0,
        )

    def _to_fetch(self, key: AdapterKey) -> list[int]:
        """The sizes of its adapter and of all that others wait for; nothing if it is on its way already."""
        coming = {each.request.record.key: each.request.record.size_bytes for each in self._fetching}
        coming = {other: size for other, size in coming.items() if self.tier_of(other) == "remote"}
        record = self._ground.registry.records.get(key)
        return [] if key in coming or record is None else [record.size_bytes, *coming.values()]

    def _awaited(self) -> set[AdapterKey]:
        waiting = (*self._fetching, *self.dispatcher.waiting.values())
        return {each.request.record.key for each in waiting if each.record is not None} | self.dispatcher.loading

    # -- what it is told and tells ---------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Requests without a row."""
        return len(self.open) - min(len(self.dispatcher.handed), self.body.batch.max_rows)

    def on_shard(self, shard: AssignmentShard) -> None:
        if self.alive:
            self.convergence.on_shard(shard)

    def record_sizes(self) -> dict[AdapterKey, int]:
        return {key: record.size_bytes for key, record in self._ground.registry.records.items()}

    def held(self) -> set[AdapterKey]:
        held = {*self.slots.table.resident, *self.tiers.ram.held, *self.tiers.files.values()}
        return held if self.serves_only is None else held | {self.serves_only}

    def tell_all(self) -> None:
        self._teller.snapshot(self.held())

    def tell_figures(self) -> None:
        self._ground.wire.tell(REPLICA_REPORT, self.report())

    def report(self) -> ReplicaReport:
        body, now_s, table = self.body, self._agenda.now_s, self.slots.table
        self._sequence += 1
        return ReplicaReport(
            replica_id=body.replica_id, incarnation=body.incarnation, pool_id=body.pool_id,
            base_model_hash=BASE_HASH, sequence=self._sequence, ready=not self.not_ready, reason=self.not_ready,
            draining=self.draining, rank_limit=body.rank_limit, engine="timed", engine_build="twin",
            max_rows=body.batch.max_rows, slots=table.count, running=len(self.batch.running),
            slots_busy=self.slots.busy(self.dispatcher.used_slots),
            queue_depth=self.waiting + max(0, len(self.batch.waiting) - self._without_row()),
            tokens_in_flight=self.promises.total, tokens_per_s=self._speed.look(self.batch.tokens, now_s),
            evictions_per_min=table.turnover.evictions_per_min(now_s),
            loads_per_min=table.turnover.loads_per_min(now_s),
            ram_bytes=self.tiers.ram.used_bytes, ram_budget_bytes=body.ram_bytes,
            disk_bytes=self.tiers.disk.used_bytes, disk_budget_bytes=body.disk_bytes,
            assignment_epoch=self.convergence.assignment.epoch, weight=body.weight, golden="unchecked",
            queued_tokens=self.dispatcher.queued_tokens,
            capacity_tokens_per_s=self._capacity.look(self.batch.tokens, self.batch.row_s),
        )  # fmt: skip

    def _without_row(self) -> int:
        return max(0, len(self.dispatcher.handed) - self.body.batch.max_rows)

    def _on_change(self, key: AdapterKey) -> None:
        self._teller.changed(key)
        self.convergence.changed(key)


def _question(attempt: Attempt) -> GenerateRequest:
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
        deadline_s=_DEADLINE_S,
    )


_SAMPLING = Sampling(seed=0)
