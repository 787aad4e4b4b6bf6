"""A replica that says the real messages over a real bus, when and as a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shared.bus.port import Bus, Ids, Subscription
from shared.contracts.catalog import ANSWER, CANCEL, FRAME, GENERATE, REPLAY, REPLICA_REPORT, REPLICA_RESIDENCY
from shared.messages.generation import (
    Accepted,
    Answer,
    Cancel,
    Cancelled,
    Finish,
    Frame,
    GenerateRequest,
    Queued,
    Refused,
    Replay,
    Replayed,
    TokenChunk,
    Usage,
)
from shared.messages.identity import AdapterKey
from shared.messages.reports import ReplicaReport, Residency, ResidencyEntry

Script = Callable[["ScriptedReplica", GenerateRequest], Awaitable[None]]
PROMPT_TOKENS = 7


class ScriptedReplica:
    """Without a `script` it keeps what it is asked for the test to answer, message by message."""

    def __init__(self, bus: Bus, replica_id: str, pool_id: str, script: Script | None = None) -> None:
        self.replica_id = replica_id
        self.pool_id = pool_id
        self.incarnation = f"{replica_id}-1"
        self.asked: asyncio.Queue[GenerateRequest] = asyncio.Queue()
        self.cancelled: asyncio.Queue[Cancel] = asyncio.Queue()
        self.replays: list[Replay] = []
        self.forgets_frames = False
        self.wall_s = 0.0
        self.tokens_in_flight = 0
        self.ready = True
        self.blames = ""
        self._bus = bus
        self._script = script
        self._sequence = 0
        self._residency_sequence = 0
        self._frames: dict[str, list[Frame]] = {}
        self._positions: dict[str, int] = {}
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        self._subscriptions = [
            await self._bus.subscribe(GENERATE, self._on_generate, self.replica_id),
            await self._bus.serve(CANCEL, self._on_cancel, self.replica_id),
            await self._bus.serve(REPLAY, self._on_replay, self.replica_id),
        ]
        await self.report()

    async def vanish(self) -> None:
        """As kill -9: nobody serves its subjects any more."""
        for subscription in self._subscriptions:
            await subscription.close()

    async def report(self) -> None:
        self._sequence += 1
        report = ReplicaReport(
            replica_id=self.replica_id, incarnation=self.incarnation, pool_id=self.pool_id, sequence=self._sequence,
            ready=self.ready, draining=False, base_model_hash="", rank_limit=16, engine="scripted", engine_build="",
            slots=4, slots_busy=0, max_rows=8, running=0, queue_depth=0, tokens_in_flight=self.tokens_in_flight,
            tokens_per_s=0.0, evictions_per_min=0.0, loads_per_min=0.0, ram_bytes=0, ram_budget_bytes=0,
            disk_bytes=0, disk_budget_bytes=0,
        )  # fmt: skip
        await self._bus.publish(REPLICA_REPORT, report, self.replica_id)

    async def hold(self, adapter: AdapterKey, tier: str = "gpu") -> None:
        self._residency_sequence += 1
        entry = ResidencyEntry(adapter_id=adapter.adapter_id, digest=adapter.digest, tier=tier)
        residency = Residency(
            replica_id=self.replica_id, incarnation=self.incarnation, pool_id=self.pool_id,
            sequence=self._residency_sequence, snapshot=True, entries=(entry,),
        )  # fmt: skip
        await self._bus.publish(REPLICA_RESIDENCY, residency, self.replica_id)

    def restart(self) -> None:
        """What it ran and what it said before is forgotten."""
        self.incarnation += "+"
        self._frames.clear()

    async def queue(self, request: GenerateRequest) -> None:
        await self._answer(
            request,
            Queued(request_id=request.request_id, replica_id=self.replica_id, incarnation=self.incarnation),
        )

    async def accept(self, request: GenerateRequest, tier: str = "gpu") -> None:
        accepted = Accepted(
            request_id=request.request_id, replica_id=self.replica_id, incarnation=self.incarnation, tier=tier,
            prompt_tokens=PROMPT_TOKENS, seed=request.sampling.seed, adapter_id=request.adapter_id,
            digest=request.digest,
        )  # fmt: skip
        await self._answer(request, accepted)

    async def refuse(
        self,
        request: GenerateRequest,
        code: str,
        *,
        elsewhere: bool,
        message: str = "No.",
        after_s: float | None = None,
    ) -> None:
        refused = Refused(
            request_id=request.request_id, replica_id=self.replica_id, code=code, message=message, elsewhere=elsewhere,
            retry_after_s=after_s, about=self.blames,
        )  # fmt: skip
        await self._answer(request, refused)

    async def say(self, request: GenerateRequest, *texts: str) -> None:
        """A frame a text, a token each."""
        for text in texts:
            await self.frame(request.gateway_id, self.token(request, text))

    async def finish(self, request: GenerateRequest, text: str = "", reason: str = "stop") -> None:
        await self.frame(request.gateway_id, self.end(request, text, reason))

    def token(self, request: GenerateRequest, text: str) -> TokenChunk:
        position = self._produced(request)
        self._positions[request.request_id] = position + 1
        return TokenChunk(request_id=request.request_id, position=position, token_ids=(100 + position,), text=text)

    def end(self, request: GenerateRequest, text: str = "", reason: str = "stop") -> TokenChunk:
        produced = self._produced(request)
        usage = Usage(prompt_tokens=PROMPT_TOKENS, completion_tokens=produced)
        error = "the engine failed" if reason == "error" else None
        finish = Finish(reason=reason, usage=usage, error=error)
        return TokenChunk(request_id=request.request_id, position=produced, token_ids=(), text=text, finish=finish)

    def _produced(self, request: GenerateRequest) -> int:
        """Here and by the replicas before this one."""
        return self._positions.get(request.request_id, len(request.produced_token_ids))

    async def frame(self, gateway_id: str, *chunks: TokenChunk, lost: bool = False) -> None:
        """One engine step's tokens; a `lost` frame is kept for replay and never arrives."""
        frames = self._frames.setdefault(gateway_id, [])
        frame = Frame(
            replica_id=self.replica_id, incarnation=self.incarnation, number=len(frames) + 1, chunks=chunks,
            written_at_s=self.wall_s,
        )  # fmt: skip
        frames.append(frame)
        if not lost:
            await self._bus.publish(FRAME, frame, gateway_id, self.replica_id)

    async def send_again(self, gateway_id: str, *numbers: int) -> None:
        """These frames, in this order."""
        for number in numbers:
            await self._bus.publish(FRAME, self._frames[gateway_id][number - 1], gateway_id, self.replica_id)

    async def heartbeat(self, gateway_id: str) -> None:
        last = len(self._frames.get(gateway_id, []))
        beat = Frame(replica_id=self.replica_id, incarnation=self.incarnation, number=last)
        await self._bus.publish(FRAME, beat, gateway_id, self.replica_id)

    async def _answer(self, request: GenerateRequest, answer: Answer) -> None:
        await self._bus.publish(ANSWER, answer, request.gateway_id, request.request_id)

    async def _on_generate(self, request: GenerateRequest, ids: Ids) -> None:
        self.asked.put_nowait(request)
        if self._script is not None:
            await self._script(self, request)

    async def _on_cancel(self, cancel: Cancel, ids: Ids) -> Cancelled:
        self.cancelled.put_nowait(cancel)
        return Cancelled(request_id=cancel.request_id, found=True)

    async def _on_replay(self, ask: Replay, ids: Ids) -> Replayed:
        self.replays.append(ask)
        if self.forgets_frames or ask.incarnation != self.incarnation:
            return Replayed(frames=(), missing=True)
        kept = self._frames.get(ask.gateway_id, [])
        return Replayed(frames=tuple(frame for frame in kept if ask.first <= frame.number <= ask.last))


def says(*texts: str, tier: str = "gpu") -> Script:
    """Answers every request with these tokens and a stop."""

    async def script(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.queue(request)
        await replica.accept(request, tier)
        await replica.say(request, *texts)
        await replica.finish(request)

    return script
