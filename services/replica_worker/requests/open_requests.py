"""Which requests are open, and every way in which one ends. Each of them releases the reference exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from services.replica_worker.core.admission import Refusal
from services.replica_worker.means import Means
from services.replica_worker.requests.answers import Answers
from services.replica_worker.requests.dispatch import Dispatcher
from services.replica_worker.requests.running import Running
from services.replica_worker.requests.traces import end_span
from shared.bus.port import BusUnavailable
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class OpenRequests:
    def __init__(self, means: Means, dispatcher: Dispatcher, answers: Answers) -> None:
        self._by = means
        self._dispatcher = dispatcher
        self._answers = answers
        self._open: dict[str, Running] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Running]:
        """Those of this moment; they may end meanwhile."""
        return iter(list(self._open.values()))

    def get(self, request_id: str) -> Running | None:
        return self._open.get(request_id)

    def add(self, running: Running) -> None:
        self._open[running.request.request_id] = running
        self._idle.clear()

    async def idle(self) -> None:
        """Returns when no request is left."""
        await self._idle.wait()

    async def turn_away(self, running: Running, refusal: Refusal) -> None:
        """At the door: it was never one of these."""
        end_span(running, "refused", self._by.clock)
        await self.refuse(running, refusal)

    async def refuse(self, running: Running, refusal: Refusal) -> None:
        """A stream that has begun ends with an error instead."""
        if running.accepted and self._open.get(running.request.request_id) is running:
            self.stop(running, "error", refusal.reason)
            return
        self.end(running, "refused")
        self._by.meters.refused.labels(refusal.code).inc()
        _log.info("a request is refused", code=refusal.code, reason=refusal.reason)
        try:
            await self._answers.refused(running, refusal)
        except BusUnavailable as error:
            _log.warning("a refusal could not be sent", reason=str(error))

    async def fail(self, running: Running, reason: str, code: str = "not_ready") -> None:
        """An error at the end of the stream if it has begun, and a refusal if not."""
        if self._open.get(running.request.request_id) is not running:
            return  # it ended while another one's end was being told
        self.stop(running, "error", reason)
        if not running.accepted:
            await self.refuse(running, Refusal(code=code, reason=f"{reason}.", elsewhere=True))

    async def send_away(self, running: Running, refusal: Refusal) -> None:
        """It has waited in vain, and nothing of it has begun."""
        if self._open.get(running.request.request_id) is running:
            self.stop(running, "refused")
            await self.refuse(running, refusal)

    async def hand_on(self, running: Running, reason: str) -> None:
        """This replica goes on with nothing, for no fault of the request's: another one may."""
        if running.accepted:
            self.stop(running, "cancelled", reason)
        else:
            await self.fail(running, reason)

    async def leave(self, gateway_id: str) -> None:
        """Nobody is there to receive what these requests produce. Should the gateway have lost the bus and not
        its life, then it finds out about their end when it comes back and sees the gap, and has them go on."""
        gone = [running for running in self if running.request.gateway_id == gateway_id]
        for running in gone:
            await self.hand_on(running, "the gateway was silent for too long")
        _log.warning("a gateway is silent, its requests are ended", gateway_id=gateway_id, requests=len(gone))

    def stop(self, running: Running, reason: str, error: str | None = None) -> None:
        """End a request from outside the engine. If it was accepted, its stream gets a last chunk."""
        if running.accepted and reason in ("cancelled", "error", "length", "stop"):
            self._answers.write([(running, running.end(reason, error))])
        if running.submitted:
            self._by.watch.engine.abort(running.request.request_id)
        if running.admission is not None and running.admission is not asyncio.current_task():
            running.admission.cancel()
        self.end(running, reason)

    def end(self, running: Running, reason: str) -> None:
        """Forget the request and release what it holds. Idempotent."""
        self._dispatcher.leave(running)
        if self._open.get(running.request.request_id) is not running:
            return
        del self._open[running.request.request_id]
        self._by.promises.end(running.request.request_id)
        if running.turn_at_s is not None:
            self._by.row_pace.ended(running.produced)
        self._by.meters.ended.labels(reason).inc()
        end_span(running, reason, self._by.clock)
        if not self._open:
            self._idle.set()
