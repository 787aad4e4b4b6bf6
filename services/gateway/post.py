"""What the gateway sends to replicas. Deciding never waits for it: what is asked is asked in a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from services.gateway.core import refusal
from services.gateway.core.frames import AskReplay
from services.gateway.core.refusal import Refusal
from shared.bus.port import AskFailed, Bus, BusUnavailable, DeadlineExceeded, NoResponders
from shared.contracts.catalog import ANSWER, CANCEL, GATEWAY_ACTIVITY, GATEWAY_REPORT, GENERATE, REPLAY
from shared.contracts.streams import MAX_MESSAGE_BYTES
from shared.messages.activity import GatewayActivity
from shared.messages.generation import Cancel, GenerateRequest, Replay, Replayed
from shared.messages.reports import GatewayReport
from shared.runtime.logs import get_logger

_CANCEL_DEADLINE_S = 2.0
_REPLAY_DEADLINE_S = 2.0
_UNHEARD = (NoResponders, DeadlineExceeded, AskFailed, BusUnavailable)

_log = get_logger(__name__)


class Post:
    """Requests leave in the order of the calls. `stop` waits for answers that are due."""

    def __init__(self, bus: Bus, gateway_id: str) -> None:
        self._bus = bus
        self._gateway_id = gateway_id
        self._under_way: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Nothing has to be ready before the first message."""

    @property
    def connected(self) -> bool:
        """Whether anything can be sent now."""
        return self._bus.connected

    @property
    def connections(self) -> int:
        """To the bus, so far: what was answered between two of them is lost."""
        return self._bus.connections

    async def stop(self) -> None:
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def generate(self, request: GenerateRequest, replica_id: str, on_failed: Callable[[Refusal], None]) -> None:
        """`on_failed` is called after this, if at all."""
        answer_to = ANSWER.subject(self._gateway_id, request.request_id)
        try:
            self._bus.send(GENERATE, request, replica_id, answer_to=answer_to)
        except BusUnavailable:
            self._fail(on_failed, refusal.unavailable(refusal.OUT_OF_TOUCH))
        except ValueError as error:
            _log.warning("a request does not fit the bus", request_id=request.request_id, error=error)
            field = "messages" if request.messages else "prompt"
            message = f"`{field}` is too long: with tools, schema and stop texts it may have {MAX_MESSAGE_BYTES} bytes."
            self._fail(on_failed, refusal.bad_request(message, param=field, code="request_too_large", status=413))

    def cancel(self, replica_id: str, bus_id: str, reason: str) -> None:
        self._ask(self._cancel(replica_id, bus_id, reason))

    def replay(self, ask: AskReplay, on_replayed: Callable[[Replayed | str], None]) -> None:
        """`on_replayed` is told the frames, or in one sentence why there are none."""
        self._ask(self._replay(ask, on_replayed))

    async def report(self, report: GatewayReport) -> None:
        """Lost if the bus is away: the next one heals."""
        with contextlib.suppress(BusUnavailable):
            await self._bus.publish(GATEWAY_REPORT, report, self._gateway_id)

    async def activity(self, activity: GatewayActivity) -> None:
        """If the bus is away, what it says stays unsaid."""
        with contextlib.suppress(BusUnavailable):
            await self._bus.publish(GATEWAY_ACTIVITY, activity, self._gateway_id)

    def _ask(self, asking: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(asking)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _fail(self, on_failed: Callable[[Refusal], None], why: Refusal) -> None:
        asyncio.get_running_loop().call_soon(on_failed, why)

    async def _cancel(self, replica_id: str, bus_id: str, reason: str) -> None:
        cancel = Cancel(gateway_id=self._gateway_id, request_id=bus_id, reason=reason)
        try:
            await self._bus.ask(CANCEL, cancel, replica_id, timeout_s=_CANCEL_DEADLINE_S)
        except _UNHEARD as error:
            # A replica that is gone has nothing to stop; one that goes on is told again by its own tokens.
            _log.info("a cancel was not answered", request_id=bus_id, replica_id=replica_id, error=error)

    async def _replay(self, ask: AskReplay, on_replayed: Callable[[Replayed | str], None]) -> None:
        question = Replay(
            gateway_id=self._gateway_id, incarnation=ask.incarnation, first=ask.first, last=ask.last
        )  # fmt: skip
        try:
            replayed = await self._bus.ask(REPLAY, question, ask.replica_id, timeout_s=_REPLAY_DEADLINE_S)
        except _UNHEARD as error:
            on_replayed(str(error))
            return
        on_replayed(replayed)
