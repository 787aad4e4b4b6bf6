"""What is told of a request: to its gateway, or to whoever asked in this process."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from services.replica_worker.core.admission import Refusal
from services.replica_worker.core.answered import Answered
from services.replica_worker.means import Means
from services.replica_worker.requests.running import Running
from shared.bus.port import BusUnavailable
from shared.contracts.catalog import ANSWER
from shared.messages.generation import Accepted, Answer, GenerateRequest, Queued, Refused, TokenChunk

_AGAIN_S = 0.2
_PATIENCE_S = 3.0
"""As long as a gateway's lease. A gateway that waits for one word does not learn that it was lost."""
_UNSENT_S = 5.0
"""So long a server may have hung before the connection to it counts as lost."""


class Answers:
    """Every coroutine waits for a bus that is away, for some seconds, and raises BusUnavailable then."""

    def __init__(self, means: Means) -> None:
        self._bus = means.bus
        self._clock = means.clock
        self._identity = means.identity
        self._frames = means.frames
        self._answered = Answered()
        self._connections = means.bus.connections
        self._connected_at_s = 0.0

    async def received(self, request: GenerateRequest) -> bool:
        """Whether this request is new. If not, it is told once more what it was answered, and the number of the last
        frame, since those may be lost as well."""
        if (word := self._answered.word_on(request.request_id)) is not None:
            self._frames.book.remind(request.gateway_id, self._clock.now_s())
            await self._send(request, word)
            return False
        name, incarnation = self._identity.replica_id, self._identity.incarnation
        await self._send(request, Queued(request_id=request.request_id, replica_id=name, incarnation=incarnation))
        return True

    async def accepted(self, running: Running) -> None:
        request = running.request
        if running.inside is not None:
            return
        answer = Accepted(
            request_id=request.request_id,
            replica_id=self._identity.replica_id,
            incarnation=self._identity.incarnation,
            tier=running.tier,
            prompt_tokens=running.prompt_tokens,
            seed=request.sampling.seed,
            adapter_id=request.adapter_id,
            digest=request.digest,
        )
        await self._send(request, answer)
        self._answered.note(answer, request.gateway_id, self._clock.now_s())

    async def refused(self, running: Running, refusal: Refusal) -> None:
        request = running.request
        if running.inside is not None:
            running.inside.refuse(refusal)
            return
        answer = Refused(
            request_id=request.request_id,
            replica_id=self._identity.replica_id,
            code=refusal.code,
            message=refusal.reason,
            elsewhere=refusal.elsewhere,
            retry_after_s=refusal.retry_after_s,
            about=refusal.about,
        )
        await self._send(request, answer)
        self._answered.note(answer, request.gateway_id, self._clock.now_s())

    def look_for_losses(self) -> None:
        """Several times a second. Once a connection of this replica's own broke, what it said shortly before may not
        have left, and gateways whose connections stood do not ask: they are told again."""
        now_s = self._clock.now_s()
        if self._connections != self._bus.connections:
            self._connections = self._bus.connections
            with suppress(BusUnavailable):  # then there will be yet another one
                for word, gateway_id in self._answered.since(self._connected_at_s - _UNSENT_S):
                    self._bus.send(ANSWER, word, gateway_id, word.request_id)
        elif self._bus.connected:
            self._connected_at_s = now_s

    def write(self, chunks: Iterable[tuple[Running, TokenChunk]]) -> None:
        """The chunks of one step, or one that ends a request."""
        outside: list[tuple[str, TokenChunk]] = []
        for running, chunk in chunks:
            if running.inside is not None:
                running.inside.hear(chunk)
            else:
                outside.append((running.request.gateway_id, chunk))
        self._frames.write(outside)

    async def _send(self, request: GenerateRequest, answer: Answer) -> None:
        until_s = self._clock.now_s() + _PATIENCE_S
        while True:
            try:
                self._bus.send(ANSWER, answer, request.gateway_id, request.request_id)
            except BusUnavailable:
                if self._clock.now_s() >= until_s:
                    raise
                await self._clock.sleep_s(_AGAIN_S)
            else:
                return
