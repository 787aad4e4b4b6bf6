"""The waiting room of requests: each is given its turn, and with it a row and a reference on its adapter's slot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

from services.replica_worker.core.dispatch import next_batch
from services.replica_worker.core.dispatch_view import Dispatch, DispatchPolicy, DispatchView, Load, Share, Waiting
from services.replica_worker.core.fairness import TokenCounters
from services.replica_worker.means import Means
from services.replica_worker.requests.running import Running
from services.replica_worker.tiers.errors import AdapterFailed
from shared.bus.port import Change
from shared.messages.desired import AdapterRecord, TenantRecord
from shared.messages.identity import AdapterKey
from shared.runtime.logs import get_logger

_ROWS_PER_SPARE = 16
"""For so many rows one request more is in the engine, so that a row which becomes free is taken in the next step."""
_log = get_logger(__name__)


@dataclass(eq=False)
class Ticket:
    """`promised`: tokens of context and answer. `turn` ends when the request may go to the engine."""

    running: Running
    record: AdapterRecord | None
    promised: int
    passed_over_since_s: float
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def key(self) -> AdapterKey | None:
        return None if self.record is None else self.record.key


class Dispatcher:
    """Decides anew whenever a request comes or goes, a load ends, or time has passed. What it decides is applied at
    once, so nobody can slip in between; a reference belongs to its request from then on, whether or not that wakes.
    """

    def __init__(self, means: Means, policy: DispatchPolicy | None = None) -> None:
        self._by = means
        self._policy = policy or DispatchPolicy()
        self._counters = TokenCounters()
        self._rows = means.max_rows + means.max_rows // _ROWS_PER_SPARE
        self._waiting: dict[str, Ticket] = {}
        self._handed: set[Running] = set()
        self._loading: dict[AdapterKey, asyncio.Task[None]] = {}
        self._due = False
        self._closed = False
        self.waits: Mapping[str, int] = {}
        """How many waited for what when it last decided: "row", "load" or "slot"."""
        means.loader.slots.listen(self.wake)

    @property
    def handed(self) -> int:
        """Requests in the engine, or on their way into it."""
        return len(self._handed)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def queued_tokens(self) -> int:
        """What was promised to those who wait."""
        return sum(ticket.promised for ticket in self._waiting.values())

    @property
    def oldest_s(self) -> float:
        """How long the one who came first has waited."""
        came_at_s = min((ticket.running.arrived_at_s for ticket in self._waiting.values()), default=None)
        return 0.0 if came_at_s is None else self._by.clock.now_s() - came_at_s

    async def on_tenant(self, change: Change[TenantRecord]) -> None:
        if change.value is None:
            self._counters.forget_weight(change.ids[0])
        else:
            self._counters.weigh(change.value.tenant_id, change.value.weight)

    async def turn(self, running: Running, record: AdapterRecord | None, promised: int) -> None:
        """Returns when the request may go to the engine; it then holds its slot reference.

        Raises AdapterUnavailable, AdapterFailed, EngineFailed. Whatever happens, pair it with `leave`.
        """
        request = running.request
        ticket = Ticket(running, record, promised, self._by.clock.now_s())
        self._waiting[request.request_id] = ticket
        self._counters.enter(request.tenant_id)
        self.wake()
        with self._by.loader.urgently():
            await ticket.turn

    def served(self, running: Running, tokens: int) -> None:
        """Tokens were produced for it."""
        self._counters.charge(running.request.tenant_id, tokens)

    def leave(self, running: Running) -> None:
        """The request has ended, wherever it was. Idempotent."""
        ticket = self._waiting.get(running.request.request_id)
        if ticket is not None and ticket.running is running:
            self._take_out(ticket)
        self._handed.discard(running)
        if running.reference is not None:
            running.reference.release()
        self.wake()

    def broken_invariants(self) -> list[str]:
        """What should be true and is not, re-derived from the requests alone."""
        table, broken = self._by.loader.slots.table, []
        keyed = [running for running in self._handed if running.key is not None]
        if any(running.reference is None for running in keyed):
            broken.append("a request is on its way into the engine without a reference")
        if any(ticket.running.reference is not None for ticket in self._waiting.values()):
            broken.append("a request waits and holds a reference")
        if len({running.key for running in keyed}) > table.count:
            broken.append(f"more adapters run than there are slots: {table.count}")
        return broken

    def wake(self) -> None:
        """Decide soon: once for all that happens in this turn of the loop."""
        if not self._due and not self._closed:
            self._due = True
            asyncio.get_running_loop().call_soon(self._decide)

    def close(self) -> None:
        """Start nothing more, load nothing more."""
        self._closed = True
        for load in self._loading.values():
            load.cancel()

    def _decide(self) -> None:
        self._due = False
        if self._closed:
            return
        try:
            self._refuse_known()
            self._apply(next_batch(self._view(), self._policy))
        except Exception as error:  # nobody else would notice: those who wait must not wait for ever
            _log.exception("a decision failed, and with it all who waited for one", error=error)
            for ticket in list(self._waiting.values()):
                self._fail(ticket, error)

    def _apply(self, decided: Dispatch) -> None:
        self.waits = decided.waits
        for start in decided.start:
            self._begin(self._waiting[start.request_id], start.reason)
        for load in decided.load:
            self._load(load)
        self._close_only(decided)

    def _refuse_known(self) -> None:
        """A slot can be found wrong after its load was over: then nobody else may wait for the same to happen."""
        table = self._by.loader.slots.table
        for ticket in list(self._waiting.values()):
            if ticket.record is None or table.has_slot(ticket.record.key):
                continue
            try:
                self._by.loader.refuse_known(ticket.record)
            except AdapterFailed as error:
                self._fail(ticket, error)

    def _view(self) -> DispatchView:
        table = self._by.loader.slots.table
        tickets = [ticket for ticket in self._waiting.values() if not self._fails(ticket.key)]
        tenants = {ticket.running.request.tenant_id for ticket in tickets}
        return DispatchView(
            now_s=self._by.clock.now_s(),
            free_rows=self._rows - len(self._handed),
            loads_in_flight=len(self._loading),
            places=table.places(),
            waiting=tuple(map(_waiting, tickets)),
            shares={each: Share(self._counters.of(each), self._counters.weight(each)) for each in tenants},
            operation_since_s=self._by.loader.queue.without_slot_since_s,
        )

    def _fails(self, key: AdapterKey | None) -> bool:
        """Its load has just failed, and those who wait for it are about to be told."""
        return key in self._loading and not self._by.loader.slots.table.has_slot(key)

    def _begin(self, ticket: Ticket, reason: str) -> None:
        running, now_s = ticket.running, self._by.clock.now_s()
        self._take_out(ticket)
        for other in self._waiting.values():
            if other.key == ticket.key:
                other.passed_over_since_s = now_s
        if ticket.record is not None:
            running.reference = self._by.loader.take(ticket.record)
        self._handed.add(running)
        self._counters.charge(running.request.tenant_id, running.prompt_tokens)
        _log.debug("a request has its turn", request_id=running.request.request_id, reason=reason)
        if not ticket.turn.done():
            ticket.turn.set_result(None)

    def _take_out(self, ticket: Ticket) -> None:
        del self._waiting[ticket.running.request.request_id]
        self._counters.leave(ticket.running.request.tenant_id)

    def _fail(self, ticket: Ticket, failure: Exception) -> None:
        self._take_out(ticket)
        if not ticket.turn.done():
            ticket.turn.set_exception(failure)
            ticket.turn.exception()  # whoever waited may have left: then this is where it is looked at

    def _load(self, load: Load) -> None:
        record = next(each.record for each in self._waiting.values() if each.record and each.key == load.key)
        _log.debug("an adapter is loaded for those who wait", adapter_id=record.adapter_id, reason=load.reason)
        if self._handed:
            self._by.meters.loads_overlapped.inc()
        arrival = self._by.loader.load_into(record, load.slot)
        self._loading[load.key] = asyncio.create_task(self._see(load.key, arrival), name=f"load of {record.adapter_id}")

    async def _see(self, key: AdapterKey, arrival: Awaitable[None]) -> None:
        """How a load ends: those who wait for it are told if it failed; they start by themselves if it did not."""
        failure: Exception | None = None
        try:
            await arrival
        except Exception as error:
            failure = error
        finally:
            del self._loading[key]
        if failure is not None:
            for ticket in [each for each in self._waiting.values() if each.key == key]:
                self._fail(ticket, failure)
        self.wake()

    def _close_only(self, decided: Dispatch) -> None:
        table = self._by.loader.slots.table
        if decided.closed == table.closed:
            return
        _log.debug("another slot is closed", slot=decided.closed, reason=decided.closed_reason)
        table.close_only(decided.closed)
        self._by.loader.queue.hand_out()
        self.wake()


def _waiting(ticket: Ticket) -> Waiting:
    return Waiting(
        request_id=ticket.running.request.request_id,
        tenant_id=ticket.running.request.tenant_id,
        key=ticket.key,
        tokens=ticket.running.prompt_tokens,
        passed_over_since_s=ticket.passed_over_since_s,
    )
