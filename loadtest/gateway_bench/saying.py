"""A replica without an engine: it says its tokens as fast as it is asked to, and costs little else.

A timed replica is a whole worker, and takes more time for a token than the gateway does: beside a gateway that is
flooded it would be measured itself. This one is to the gateway what the mock backend is to a router.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from loadtest.gateway_bench.stamps import first_stamp, later_stamp, pace_s
from loadtest.gateway_bench.stepping import until_step_s
from services.replica_worker.requests.frame_sender import FrameSender
from shared.bus.port import Bus, Ids, Subscription
from shared.contracts.catalog import ANSWER, CANCEL, GENERATE, REPLAY, REPLICA_REPORT
from shared.messages.generation import (
    Accepted,
    Cancel,
    Cancelled,
    Finish,
    GenerateRequest,
    Queued,
    Replay,
    Replayed,
    TokenChunk,
    Usage,
)
from shared.messages.reports import ReplicaReport

_TOKEN_IDS = (100,)
_PROMPT_TOKENS = 32
_MOST_ROWS = 1 << 16
BATCHES = 10
"""Streams with a pace are spread over so many batches with steps of their own, as over as many replicas."""
Batch = tuple[float, int]
"""How long its steps are, and which of those it is."""


@dataclass(eq=False, slots=True)
class _Stream:
    request: GenerateRequest
    came_ns: int
    said: int = 0

    def next(self, now_ns: int) -> TokenChunk:
        at, request = self.said, self.request
        self.said += 1
        text = later_stamp(now_ns) if at else first_stamp(now_ns, self.came_ns)
        finish = None
        if self.said == request.sampling.max_tokens:
            finish = Finish(reason="length", usage=Usage(prompt_tokens=_PROMPT_TOKENS, completion_tokens=self.said))
        return TokenChunk(request_id=request.request_id, position=at, token_ids=_TOKEN_IDS, text=text, finish=finish)


class SayingReplica:
    """A part of a process: `bus` is its own."""

    def __init__(self, bus: Bus, frames: FrameSender, pool_id: str) -> None:
        self._bus = bus
        self._frames = frames
        self._pool_id = pool_id
        self._name, self._incarnation = frames.book.replica_id, frames.book.incarnation
        self._streams: dict[Batch, dict[str, _Stream]] = {}
        self._steps: dict[Batch, asyncio.Task[None]] = {}
        self._turns = itertools.count()
        self._open: list[Subscription] = []
        self._reported = 0

    async def start(self) -> None:
        bus = self._bus
        self._open += [
            await bus.serve(CANCEL, self._on_cancel, self._name),
            await bus.serve(REPLAY, self._on_replay, self._name),
            await bus.hear(GENERATE, self._on_generate, self._name),
        ]

    async def stop(self) -> None:
        for subscription in self._open:
            await subscription.close()
        for step in self._steps.values():
            step.cancel()
        await asyncio.gather(*self._steps.values(), return_exceptions=True)

    async def report(self) -> None:
        """Every second."""
        self._reported += 1
        running = sum(map(len, self._streams.values()))
        await self._bus.publish(
            REPLICA_REPORT,
            ReplicaReport(
                replica_id=self._name, incarnation=self._incarnation, pool_id=self._pool_id, sequence=self._reported,
                ready=True, draining=False, base_model_hash="", rank_limit=16, engine="saying", engine_build="",
                slots=_MOST_ROWS, slots_busy=0, max_rows=_MOST_ROWS, running=running, queue_depth=0,
                tokens_in_flight=0, tokens_per_s=0.0, evictions_per_min=0.0, loads_per_min=0.0, ram_bytes=0,
                ram_budget_bytes=0, disk_bytes=0, disk_budget_bytes=0,
            ),
            self._name,
        )  # fmt: skip

    async def beat(self) -> None:
        self._frames.beat({each.request.gateway_id for some in self._streams.values() for each in some.values()})

    def _on_generate(self, request: GenerateRequest, ids: Ids) -> None:
        """The same answers as a worker's."""
        came_ns, gateway_id, name = time.monotonic_ns(), request.gateway_id, request.request_id
        queued = Queued(request_id=name, replica_id=self._name, incarnation=self._incarnation)
        self._bus.send(ANSWER, queued, gateway_id, name)
        accepted = Accepted(
            request_id=name, replica_id=self._name, incarnation=self._incarnation, tier="gpu",
            prompt_tokens=_PROMPT_TOKENS, seed=request.sampling.seed, adapter_id=request.adapter_id,
            digest=request.digest,
        )  # fmt: skip
        self._bus.send(ANSWER, accepted, gateway_id, name)
        step_s = pace_s(request)
        batch = (step_s, next(self._turns) % BATCHES if step_s else 0)
        self._streams.setdefault(batch, {})[name] = _Stream(request=request, came_ns=came_ns)
        if batch not in self._steps:
            self._steps[batch] = asyncio.create_task(self._run(batch))

    async def _run(self, batch: Batch) -> None:
        """Steps of one length, for as long as anybody wants them."""
        (step_s, number), streams = batch, self._streams[batch]
        while streams:
            await asyncio.sleep(until_step_s(time.monotonic(), step_s, number / BATCHES))
            now_ns = time.monotonic_ns()
            said = [(each.request.gateway_id, each.next(now_ns)) for each in streams.values()]
            self._frames.write(said)
            for _, chunk in said:
                if chunk.finish is not None:
                    del streams[chunk.request_id]
        del self._steps[batch]

    async def _on_cancel(self, cancel: Cancel, ids: Ids) -> Cancelled:
        found = [some.pop(cancel.request_id, None) for some in self._streams.values()]
        return Cancelled(request_id=cancel.request_id, found=any(found))

    async def _on_replay(self, ask: Replay, ids: Ids) -> Replayed:
        return self._frames.book.replay(ask)
