"""What is told of a request: to its gateway, or to whoever asked in this process."""

from __future__ import annotations

from collections.abc import Iterable

from services.replica_worker.core.admission import Refusal
from services.replica_worker.requests.frame_sender import FrameSender
from services.replica_worker.requests.running import Running
from services.replica_worker.standing import Identity
from shared.bus.port import Bus
from shared.contracts.catalog import ANSWER
from shared.messages.generation import Accepted, Answer, GenerateRequest, Queued, Refused, TokenChunk


class Answers:
    """Every coroutine may raise BusUnavailable."""

    def __init__(self, bus: Bus, identity: Identity, frames: FrameSender) -> None:
        self._bus = bus
        self._identity = identity
        self._frames = frames

    async def queued(self, request: GenerateRequest) -> None:
        answer = Queued(
            request_id=request.request_id,
            replica_id=self._identity.replica_id,
            incarnation=self._identity.incarnation,
        )
        await self._send(request, answer)

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
        )
        await self._send(request, answer)

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
        await self._bus.publish(ANSWER, answer, request.gateway_id, request.request_id)
