"""What must be true of the fleet whatever happens, derived anew and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from loadtest.twin.gateway import Gateway
from loadtest.twin.replica import Replica
from services.replica_worker.core.assignment import Assignment
from services.replica_worker.core.slot import SlotState

if TYPE_CHECKING:
    from loadtest.twin.twin import Twin

_ENOUGH = 20
"""So many broken ones say what there is to say."""


class Invariants:
    """`broken` has a sentence for each that did not hold, with the time."""

    def __init__(self, twin: Twin) -> None:
        self.broken: list[str] = []
        self._twin = twin
        self._left = twin.scenario.check_every
        self._last_s = 0.0
        self._assignments: dict[Replica, Assignment] = {}
        self._newest_epoch = 0

    def after_event(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left = self._twin.scenario.check_every
            self.check()

    def check(self, *, at_the_end: bool = False) -> None:
        if len(self.broken) < _ENOUGH:
            now_s = self._twin.agenda.now_s
            self.broken += [f"{now_s:.3f} s: {sentence}" for sentence in self._sentences(at_the_end)]

    def _sentences(self, at_the_end: bool) -> Iterator[str]:
        yield from self._clock()
        yield from self._requests(at_the_end)
        yield from self._placement()
        for replica in self._twin.fleet:
            name = replica.body.replica_id
            for check in (_slots, _references, _bytes, _rows, _tokens, _promises, _own_adapter):
                yield from (f"{name}: {sentence}" for sentence in check(replica))
            yield from self._assignment(replica)
        for gateway in self._twin.gateways:
            yield from _sends(gateway)

    def _clock(self) -> Iterator[str]:
        now_s, self._last_s = self._twin.agenda.now_s, max(self._last_s, self._twin.agenda.now_s)
        if now_s < self._last_s:
            yield f"the clock went back from {self._last_s:.6f} s"

    def _requests(self, at_the_end: bool) -> Iterator[str]:
        live = sum(len(gateway.live) for gateway in self._twin.gateways)
        if live + self._twin.over != self._twin.begun:
            yield f"{self._twin.begun} requests began, {live} live and {self._twin.over} ended"
        if at_the_end and live:
            yield f"{live} requests never ended"

    def _placement(self) -> Iterator[str]:
        store = self._twin.store
        epochs = {membership.epoch for membership in store.stored.memberships.values()}
        if any(epoch < self._newest_epoch for epoch in epochs):
            yield f"memberships of epochs {sorted(epochs)} replaced those of epoch {self._newest_epoch}"
        self._newest_epoch = max([self._newest_epoch, *epochs])

    def _assignment(self, replica: Replica) -> Iterator[str]:
        """Once for each."""
        name, assignment = replica.body.replica_id, replica.convergence.assignment
        before = self._assignments.get(replica)
        if before is assignment:
            return
        self._assignments[replica] = assignment
        if before is not None and assignment.epoch < before.epoch:
            yield f"{name}: it follows epoch {assignment.epoch} after {before.epoch}"
        yield from (f"{name}: {sentence}" for sentence in _assigned(replica))


def _slots(replica: Replica) -> Iterator[str]:
    table = replica.slots.table
    yield from table.broken_invariants()
    if len(table.resident) > replica.body.slots:
        yield f"{len(table.resident)} adapters are resident, there are {replica.body.slots} slots"
    if table.busy != (busy := replica.slots.busy(replica.dispatcher.turns.used_slots)):
        yield f"{busy} slots are reported as busy, {table.busy} are"
    if table.empty != replica.slots.empty:
        yield f"{replica.slots.empty} slots are thought to be empty, {table.empty} are"


def _references(replica: Replica) -> Iterator[str]:
    """Of a slot: those of its requests, and one for a load and a proof each that are under way."""
    held = Counter(attempt.slot for attempt in replica.dispatcher.turns.handed if attempt.slot is not None)
    for place in replica.slots.table.places():
        others = replica.slots.own_references(place)
        if place.references != held[place.slot] + others:
            whose = f"{held[place.slot]} requests and {others} others"
            yield f"slot {place.slot} has {place.references} references, of {whose}"


def _bytes(replica: Replica) -> Iterator[str]:
    yield from (f"RAM: {sentence}" for sentence in replica.tiers.ram.broken_invariants())
    yield from (f"disk: {sentence}" for sentence in replica.tiers.disk.broken_invariants())


def _rows(replica: Replica) -> Iterator[str]:
    rows = replica.body.batch.max_rows
    if len(replica.batch.rows.running) > rows:
        yield f"{len(replica.batch.rows.running)} requests run in {rows} rows"
    if (blocks := replica.batch.rows.blocks_missing()) > 0:
        yield f"{blocks} blocks of the KV cache are held twice"


def _tokens(replica: Replica) -> Iterator[str]:
    found = replica.given_tokens + sum(replica.batch.produced(attempt) for attempt in replica.open)
    if found != replica.batch.tokens:
        yield f"its steps produced {replica.batch.tokens} tokens, its requests have {found}"


def _promises(replica: Replica) -> Iterator[str]:
    promised = sum(attempt.promised for attempt in replica.open)
    if replica.promises.total != promised:
        yield f"it reports {replica.promises.total} tokens in flight, its requests were promised {promised}"


def _own_adapter(replica: Replica) -> Iterator[str]:
    places = replica.slots.table.places()
    for attempt in replica.dispatcher.turns.handed:
        key = attempt.request.record.key
        if attempt.slot is None:
            right = replica.serves_only == key
        else:
            right = places[attempt.slot].key == key and places[attempt.slot].state is SlotState.READY
        if not right:
            yield f"{attempt.id} runs, and its adapter {key.adapter_id} is not in its slot"


def _assigned(replica: Replica) -> Iterator[str]:
    """Only of assignments that are whole: two cuts may stand side by side for a moment."""
    assignment, sizes = replica.convergence.assignment, replica.record_sizes()
    if len(assignment.parts) != assignment.shards:
        return
    wanted = {key: each for key, each in assignment.wanted().items() if key in sizes}
    gpu = sum(each.tier == "gpu" for each in wanted.values())
    in_ram = sum(sizes[key] for key, each in wanted.items() if each.tier != "disk")
    budgets = (
        ("slots", gpu, replica.body.slots),
        ("bytes of RAM", in_ram, replica.body.ram_bytes),
        ("bytes of disk", sum(sizes[key] for key in wanted), replica.body.disk_bytes),
    )
    yield from (f"it is assigned {used} {what}, and has {there}" for what, used, there in budgets if used > there)


def _sends(gateway: Gateway) -> Iterator[str]:
    for replica_id, promised in gateway.fleet.promised_tokens().items():
        live = sum(request.tokens for request in gateway.by_replica.get(replica_id, ()))
        if not 0 <= promised <= live:
            yield f"{gateway.gateway_id} counts {promised} tokens sent to {replica_id}, of {live} under way"
