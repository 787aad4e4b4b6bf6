"""Each request is given its turn, and with it a row and a reference on its adapter's slot; it may have to give
both back for a while."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping

from services.replica_worker.core.dispatch import next_batch
from services.replica_worker.core.dispatch_view import Dispatch, DispatchPolicy, DispatchView, Load, Pause
from services.replica_worker.means import Means
from services.replica_worker.requests.running import Running
from services.replica_worker.requests.waiting_room import Ticket, WaitingRoom
from services.replica_worker.tiers.errors import AdapterFailed
from shared.bus.port import Change
from shared.messages.desired import AdapterRecord, TenantRecord
from shared.messages.identity import AdapterKey
from shared.runtime.logs import get_logger

_ROWS_PER_SPARE = 16
"""For so many rows one request more is in the engine, so that a row which becomes free is taken in the next step."""
_log = get_logger(__name__)


class Dispatcher:
    """Decides anew whenever a request comes or goes, a load ends, or time has passed. What it decides is applied at
    once, so nobody can slip in between; a reference belongs to its request from then on, whether or not that wakes.

    `on_pause` is told of a request that has to leave the engine; it then waits for its next `turn_again`.
    """

    def __init__(self, means: Means, on_pause: Callable[[Running], None], policy: DispatchPolicy | None = None) -> None:
        self._by = means
        self._on_pause = on_pause
        self._policy = policy or DispatchPolicy()
        self._rows = means.max_rows + means.max_rows // _ROWS_PER_SPARE
        self._room = WaitingRoom()
        self._handed: dict[Running, Ticket] = {}
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
        return len(self._room)

    @property
    def queued_tokens(self) -> int:
        return self._room.queued_tokens

    @property
    def oldest_s(self) -> float:
        """How long ago the first of those came who wait."""
        came_at_s = self._room.first_came_at_s
        return 0.0 if came_at_s is None else self._by.clock.now_s() - came_at_s

    async def on_tenant(self, change: Change[TenantRecord]) -> None:
        if change.value is None:
            self._room.counters.forget_weight(change.ids[0])
        else:
            self._room.counters.weigh(change.value.tenant_id, change.value.weight)

    async def turn(self, running: Running, record: AdapterRecord | None, promised: int) -> None:
        """Returns when the request may go to the engine; it then holds its slot reference.

        Raises AdapterUnavailable, AdapterFailed, EngineFailed. Whatever happens, pair it with `leave`.
        """
        self._room.enter(Ticket(running, record, promised, self._by.clock.now_s()))
        self.wake()
        await self.turn_again(running)

    async def turn_again(self, running: Running) -> None:
        """The same for a request that was paused."""
        with self._by.loader.urgently():
            await self._room[running.request.request_id].turn

    def served(self, running: Running, tokens: int) -> None:
        """Tokens were produced for it."""
        self._room.counters.charge(running.request.tenant_id, tokens)
        if self.waits.get("slot"):
            self.wake()  # a first token may be what a slot was waiting for

    def leave(self, running: Running) -> None:
        """The request has ended, wherever it was. Idempotent."""
        self._room.leave(running)
        self._handed.pop(running, None)
        if running.reference is not None:
            running.reference.release()
        self.wake()

    def broken_invariants(self) -> list[str]:
        """What should be true and is not, re-derived from the requests alone."""
        table, broken = self._by.loader.slots.table, []
        keyed = [running for running, ticket in self._handed.items() if ticket.key is not None]
        if any(running.reference is None for running in keyed):
            broken.append("a request is on its way into the engine without a reference")
        if any(ticket.running.reference is not None or ticket.running.submitted for ticket in self._room):
            broken.append("a request waits, and holds a reference or is in the engine")
        if len({running.key for running in keyed}) > table.count:
            broken.append(f"more adapters run than there are slots: {table.count}")
        away = {ticket.key for ticket in self._room if ticket.paused}
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
            self._room.fail(error, lambda _: True)

    def _apply(self, decided: Dispatch) -> None:
        self.waits = decided.waits
        for start in decided.start:
            self._begin(self._room[start.request_id], start.reason)
        for pause in decided.pause:
            self._pause(pause)
        for load in decided.load:
            self._load(load)
        self._close_only(decided)

    def _refuse_known(self) -> None:
        """A slot can be found wrong after its load was over: then nobody else may wait for the same to happen."""
        table = self._by.loader.slots.table
        for ticket in self._room:
            if ticket.record is None or table.has_slot(ticket.record.key):
                continue
            try:
                self._by.loader.refuse_known(ticket.record)
            except AdapterFailed as error:
                self._room.fail(error, lambda each, failed=ticket: each is failed)  # type: ignore[misc]

    def _view(self) -> DispatchView:
        waiting = [ticket.as_waiting() for ticket in self._room if not self._fails(ticket.key)]
        pausable = self._pausable() if waiting else {}
        return DispatchView(
            now_s=self._by.clock.now_s(),
            free_rows=self._rows - len(self._handed),
            loads_in_flight=len(self._loading),
            places=self._by.loader.slots.table.places(),
            waiting=tuple(waiting),
            shares=self._room.shares({each.tenant_id for each in waiting}.union(*pausable.values())),
            operation_since_s=self._by.loader.queue.without_slot_since_s,
            pausable=pausable,
        )

    def _pausable(self) -> dict[int, frozenset[str]]:
        """Slots on which nothing but requests with a first token and a proof stand, and whose they are."""
        on_slot = self._on_slots()
        return {
            place.slot: frozenset(running.request.tenant_id for running in on_slot[place.slot])
            for place in self._by.loader.slots.table.places()
            if place.references == len(on_slot[place.slot]) > 0
            and all(running.pausable for running in on_slot[place.slot])
        }

    def _on_slots(self) -> defaultdict[int, list[Running]]:
        on_slot: defaultdict[int, list[Running]] = defaultdict(list)
        for running in self._handed:
            if running.reference is not None:
                on_slot[running.reference.slot].append(running)
        return on_slot

    def _fails(self, key: AdapterKey | None) -> bool:
        """Its load has just failed, and those who wait for it are about to be told."""
        return key in self._loading and not self._by.loader.slots.table.has_slot(key)

    def _begin(self, ticket: Ticket, reason: str) -> None:
        running = ticket.running
        if ticket.record is not None:
            running.reference = self._by.loader.take(ticket.record)
        self._handed[running] = ticket
        self._room.begin(ticket, self._by.clock.now_s())
        _log.debug("a request has its turn", request_id=running.request.request_id, reason=reason)

    def _pause(self, pause: Pause) -> None:
        _log.debug("requests are paused", slot=pause.slot, reason=pause.reason)
        for running in self._on_slots()[pause.slot]:
            ticket, reference = self._handed.pop(running), running.reference
            running.reference = None
            left = ticket.promised - running.produced
            self._room.enter(Ticket(running, ticket.record, left, self._by.clock.now_s(), paused=True))
            self._on_pause(running)
            assert reference is not None, "it was found by its reference"
            reference.release()

    def _load(self, load: Load) -> None:
        if not self._by.loader.slots.table.can_load(load.slot, load.key):
            return  # an operation waited for the slot that was made free
        record = next(each.record for each in self._room if each.record and each.key == load.key)
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
            self._room.fail(failure, lambda ticket: ticket.key == key)
        self.wake()

    def _close_only(self, decided: Dispatch) -> None:
        table = self._by.loader.slots.table
        if decided.closed == table.closed:
            return
        _log.debug("another slot is closed", slot=decided.closed, reason=decided.closed_reason)
        table.close_only(decided.closed)
        self._by.loader.queue.hand_out()
        self.wake()
