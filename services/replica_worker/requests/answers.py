"""What a gateway is told about its request before the first token."""

from __future__ import annotations

from services.replica_worker.core.admission import Refusal
from services.replica_worker.requests.running import Running
from services.replica_worker.standing import Identity
from shared.bus.port import Bus
from shared.contracts.catalog import ANSWER
from shared.messages.generation import Accepted, Answer, GenerateRequest, Queued, Refused


class Answers:
    """Every method may raise BusUnavailable."""

    def __init__(self, bus: Bus, identity: Identity) -> None:
        self._bus = bus
        self._identity = identity

    async def queued(self, request: GenerateRequest) -> None:
        answer = Queued(
            request_id=request.request_id,
            replica_id=self._identity.replica_id,
            incarnation=self._identity.incarnation,
        )
        await self._send(request, answer)

    async def accepted(self, running: Running) -> None:
        request = running.request
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

    async def refused(self, request: GenerateRequest, refusal: Refusal) -> None:
        answer = Refused(
            request_id=request.request_id,
            replica_id=self._identity.replica_id,
            code=refusal.code,
            message=refusal.reason,
            elsewhere=refusal.elsewhere,
            retry_after_s=refusal.retry_after_s,
        )
        await self._send(request, answer)

    async def _send(self, request: GenerateRequest, answer: Answer) -> None:
        await self._bus.publish(ANSWER, answer, request.gateway_id, request.request_id)
