"""One replica: requests at its door, through its tiers, slots and engine, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable

from loadtest.twin.batch import Batch
from loadtest.twin.converging import Convergence
from loadtest.twin.dispatching import Dispatcher
from loadtest.twin.entrance import Entrance
from loadtest.twin.ground import Body, Ground
from loadtest.twin.links import Link
from loadtest.twin.reporting import Reporter
from loadtest.twin.request import Attempt
from loadtest.twin.sequence import Sequence
from loadtest.twin.slots import Slots
from loadtest.twin.telling import ResidencyTeller
from loadtest.twin.tiers import Tiers
from services.replica_worker.core.admission import Refusal
from services.replica_worker.core.residency import ResidencyLog
from services.replica_worker.core.row_pace import RowPace
from services.replica_worker.core.tokens import Promises
from shared.contracts.catalog import REPLICA_REPORT
from shared.messages.desired import AssignmentShard
from shared.messages.identity import AdapterKey


class Replica:
    """`not_ready` is why it takes nothing, "" once it serves. A dead one does and says nothing any more."""

    def __init__(self, body: Body, ground: Ground) -> None:
        self.body = body
        self.alive, self.paused, self.draining, self.not_ready = True, False, False, ""
        self._inbox: list[tuple[Attempt, Callable[[Attempt], None]]] = []
        self.open: dict[Attempt, None] = {}
        self.promises = Promises()
        self.row_pace = RowPace()
        self.given_tokens = 0
        """Of requests that have left."""
        agenda, timing = ground.agenda, ground.scenario.timing
        self.batch = Batch(body.batch, body.steps, agenda, self._on_step, ground.draw)
        if ground.crowd is not None:
            ground.crowd.join(self.batch)
        self.tiers = Tiers(body.ram_bytes, body.disk_bytes, timing, agenda, self._on_change)
        slot_link = Link(timing.slot_bytes_per_s, timing.slot_latency_s)
        self.slots = Slots(body.slots, slot_link, agenda, self.tiers, self.batch)
        self.dispatcher = Dispatcher(ground.scenario.dispatch, agenda, self.batch, self.slots, self._unavailable)
        self.convergence = Convergence(agenda, ground.registry, self.tiers, self.slots, self._awaited)
        self.slots.on_change, self.slots.on_freed = self._on_change, self.dispatcher.wake
        log = ResidencyLog(body.replica_id, body.incarnation, body.pool_id)
        self._teller = ResidencyTeller(log, ground.wire, agenda, self.tier_of)
        self._ground = ground
        self._agenda = agenda
        self._reporter = Reporter(self, agenda)
        self.fetching: dict[Attempt, None] = {}
        self._entrance = Entrance(self, ground)
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
        refusal = self._entrance.refusal_of(attempt)
        if refusal is not None:
            attempt.over = True
            self._ground.on_refused(attempt, refusal)
            return
        self.open[attempt] = None
        self._entrance.watch(attempt)
        self.promises.make(attempt.id, attempt.promised)
        attempt.tenant = attempt.request.record.tenant_id
        if self.serves_only is None:
            attempt.record = attempt.request.record
        if attempt.record is None or attempt.tier == "gpu":
            self.dispatcher.enter(attempt)
        else:
            self.fetching[attempt] = None
            self.tiers.hold_in_ram(attempt.record, lambda why: self._fetched(attempt, why))

    def stop(self, attempt: Attempt) -> None:
        """Its gateway wants no more of it."""
        if attempt in self.open:
            self.batch.withdraw(attempt)
            self._end(attempt)

    def die(self) -> None:
        self.alive = self.batch.alive = self.dispatcher.alive = self.convergence.alive = False
        if self.batch.crowd is not None:
            self.batch.crowd.leave(self.batch)

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
        del self.fetching[attempt]
        if attempt.over or not self.alive:
            return
        if why:
            self._unavailable(attempt, why)
        else:
            self.dispatcher.enter(attempt)

    def send_away(self, attempt: Attempt, refusal: Refusal) -> None:
        """It has waited in vain."""
        self._end(attempt)
        self._ground.on_refused(attempt, refusal)

    def _unavailable(self, attempt: Attempt, why: str) -> None:
        self.send_away(attempt, Refusal(code="adapter_unavailable", reason=f"{why}.", elsewhere=True))

    def _on_step(self, first: list[Sequence], ended: list[Sequence]) -> None:
        for attempt in first:
            assert isinstance(attempt, Attempt), "nobody else submits here"
            attempt.moving = True
            if attempt.turn_at_s is not None:
                self.row_pace.began(self._agenda.now_s - attempt.turn_at_s)
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
        if attempt.turn_at_s is not None:
            self.row_pace.ended(self.batch.produced(attempt))
        del self.open[attempt]
        self.promises.end(attempt.id)
        self.dispatcher.leave(attempt)

    def _awaited(self) -> set[AdapterKey]:
        waiting = (*self.fetching, *self.dispatcher.turns.waiting.values())
        return {each.request.record.key for each in waiting if each.record is not None} | self.dispatcher.turns.loading

    # -- what it is told and tells ---------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Requests without a row."""
        return len(self.open) - min(len(self.dispatcher.turns.handed), self.body.batch.max_rows)

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
        self._ground.wire.tell(REPLICA_REPORT, self._reporter.report())

    def _on_change(self, key: AdapterKey) -> None:
        self._teller.changed(key)
        self.convergence.changed(key)
