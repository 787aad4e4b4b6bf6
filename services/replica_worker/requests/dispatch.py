"""Each request is given its turn, and with it a row and a reference on its adapter's slot; it may have to give
both back for a while."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping

from services.replica_worker.core.dispatch import next_batch
from services.replica_worker.core.dispatch_view import Dispatch, DispatchPolicy, DispatchView, Pause
from services.replica_worker.core.row_ends import Row
from services.replica_worker.core.row_pace import before
from services.replica_worker.means import Means
from services.replica_worker.requests.arrivals import Arrivals
from services.replica_worker.requests.handed import Handed
from services.replica_worker.requests.running import Running
from services.replica_worker.requests.waiting_room import Ticket, WaitingRoom
from shared.bus.port import Change
from shared.messages.desired import AdapterRecord, TenantRecord
from shared.runtime.logs import get_logger

_ROWS_PER_SPARE = 16
"""For so many rows one request more is in the engine, so that a row which becomes free is taken in the next step."""
_log = get_logger(__name__)

OnPause = Callable[[Running, Awaitable[None]], None]


class Dispatcher:
    """Decides anew whenever a request comes or goes, a load ends, or time has passed. What it decides is applied at
    once, so nobody can slip in between; a reference is its request's from then on, whether or not that wakes.

    `on_pause` is told of a request that has to leave the engine, and what to wait for until it may go on.
    """

    def __init__(self, means: Means, on_pause: OnPause, policy: DispatchPolicy | None = None) -> None:
        self._by = means
        self._on_pause = on_pause
        self._policy = policy or DispatchPolicy()
        self._rows = means.max_rows + means.max_rows // _ROWS_PER_SPARE
        self.room = WaitingRoom()
        self._handed = Handed()
        self._arrivals = Arrivals(means, self.room, self.wake)
        self._due = False
        self._closed = False
        self.waits: Mapping[str, int] = {}
        """How many waited for what when it last decided: "row", "load" or "slot"."""
        means.loader.slots.listen(self.wake)
        means.loader.slots.table.awaited = self.room.awaited

    @property
    def handed(self) -> int:
        """Requests in the engine, or on their way into it."""
        return len(self._handed)

    @property
    def waiting(self) -> int:
        return len(self.room)

    @property
    def free_rows(self) -> int:
        """Below zero if there are requests in the engine that wait for a row there."""
        return self._by.max_rows - len(self._handed)

    @property
    def rows(self) -> list[Row]:
        """Those in the engine that are furthest, as many as there are rows: others wait for one there."""
        return self._handed.rows(self._by.max_rows)

    @property
    def prompts(self) -> int:
        """Those in the engine that have had no first token yet."""
        return self._handed.without_token

    def before(self, tenant_id: str, others: Iterable[Running]) -> int:
        """How many of the others, of those that want nothing but a row, have it before one more of this customer.
        Who waits for an adapter to come takes no row meanwhile."""
        waiting = Counter(each.request.tenant_id for each in others if each not in self._handed and self._fits(each))
        return before(waiting, self.room.counters.weight, tenant_id)

    def _fits(self, running: Running) -> bool:
        key, loader = running.key, self._by.loader
        return key is None or key == loader.merged or loader.slots.table.has_slot(key)

    async def on_tenant(self, change: Change[TenantRecord]) -> None:
        if change.value is None:
            self.room.counters.forget_weight(change.ids[0])
        else:
            self.room.counters.weigh(change.value.tenant_id, change.value.weight)

    async def turn(self, running: Running, record: AdapterRecord | None) -> None:
        """Returns when the request may go to the engine; it then holds its slot reference.

        Raises AdapterUnavailable, AdapterFailed, EngineFailed. Whatever happens, pair it with `leave`.
        """
        running.in_line_at_s = self._by.clock.now_s()
        ticket = Ticket(running, record, running.in_line_at_s)
        self.room.enter(ticket)
        (self._decide if len(self.room) == 1 else self.wake)()  # one alone is compared with nobody
        await self.turn_again(ticket.turn)

    async def turn_again(self, turn: Awaitable[None]) -> None:
        """The same for a request that was paused: `turn` is what it was given then."""
        with self._by.loader.demand.urgently():
            await turn

    def served(self, running: Running, tokens: int) -> None:
        """Tokens were produced for it."""
        self.room.counters.charge(running.request.tenant_id, tokens)
        if self.waits.get("slot"):
            self.wake()  # a first token may be what a slot was waiting for

    def leave(self, running: Running) -> None:
        """The request has ended, wherever it was. Idempotent."""
        self.room.leave(running)
        self._handed.take(running)
        if running.reference is not None:
            running.reference.release()
        self.wake()

    def broken_invariants(self) -> list[str]:
        """What should be true and is not."""
        table = self._by.loader.slots.table
        broken = self._handed.broken_invariants(table.count)
        if any(ticket.running.reference is not None or ticket.running.submitted for ticket in self.room):
            broken.append("a request waits, and holds a reference or is in the engine")
        away = {ticket.key for ticket in self.room if ticket.paused and ticket.key and not table.has_slot(ticket.key)}
        if len(away) > table.count:
            broken.append(f"{len(away)} adapters are paused, and there are {table.count} slots")
        return broken

    def wake(self) -> None:
        """Decide soon: once for all that happens in this turn of the loop."""
        if not self._due and not self._closed:
            self._due = True
            asyncio.get_running_loop().call_soon(self._decide)

    def close(self) -> None:
        """Start nothing more, load nothing more."""
        self._closed = True
        self._arrivals.close()

    def _decide(self) -> None:
        self._due = False
        if self._closed:
            return
        try:
            self._arrivals.refuse_known()
            self._apply(next_batch(self._view(), self._policy))
        except Exception as error:  # nobody else would notice: those who wait must not wait for ever
            _log.exception("a decision failed, and with it all who waited for one", error=error)
            self.room.fail(error, lambda _: True)

    def _apply(self, decided: Dispatch) -> None:
        self.waits = decided.waits
        for start in decided.start:
            self._begin(self.room[start.request_id], start.reason)
        with self._by.loader.slots.as_one():  # or an operation would take a slot that was made free for another
            for pause in decided.pause:
                self._pause(pause)
            for load in decided.load:
                self._arrivals.begin(load, beside_others=bool(self._handed))
        self._close_only(decided)

    def _view(self) -> DispatchView:
        waiting = [ticket.as_waiting() for ticket in self.room if not self._arrivals.failed(ticket.key)]
        places = self._by.loader.slots.table.places()
        operation_since_s = self._by.loader.queue.without_slot_since_s
        pausable = self._handed.pausable(places) if waiting or operation_since_s is not None else {}
        return DispatchView(
            now_s=self._by.clock.now_s(),
            free_rows=self._rows - len(self._handed),
            loads_in_flight=len(self._arrivals),
            places=places,
            waiting=tuple(waiting),
            shares=self.room.shares({each.tenant_id for each in waiting}.union(*pausable.values())),
            operation_since_s=operation_since_s,
            pausable=pausable,
        )

    def _begin(self, ticket: Ticket, reason: str) -> None:
        running = ticket.running
        if ticket.record is not None:
            running.reference = self._by.loader.take(ticket.record)
        if running.turn_at_s is None and self.free_rows > 0:
            running.ahead = self.prompts
        self._handed.add(ticket)
        now_s = self._by.clock.now_s()
        running.turn_at_s = running.turn_at_s or now_s
        self.room.begin(ticket, now_s)
        _log.debug("a request has its turn", request_id=running.request.request_id, reason=reason)

    def _pause(self, pause: Pause) -> None:
        _log.debug("requests are paused", slot=pause.slot, reason=pause.reason)
        for ticket in self._handed.on_slot(pause.slot):
            running = ticket.running
            self._handed.take(running)
            reference, running.reference = running.reference, None
            back = Ticket(running, ticket.record, self._by.clock.now_s(), paused=True)
            self.room.enter(back)
            self._on_pause(running, back.turn)
            assert reference is not None, "it was found by its reference"
            reference.release()

    def _close_only(self, decided: Dispatch) -> None:
        table = self._by.loader.slots.table
        if decided.closed == table.closed:
            return
        _log.debug("another slot is closed", slot=decided.closed, reason=decided.closed_reason)
        table.close_only(decided.closed)
        self._by.loader.queue.hand_out()
        self.wake()
