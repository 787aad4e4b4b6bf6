"""The reference engine: the worker's port over a stepping thread.

Everything here runs on the event loop and never waits for a step. The loop's side knows which requests are
live, so that an aborted one is silent from that moment on, whatever its last step still produces.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence as SequenceOf
from pathlib import Path

import torch

from services.replica_worker.engine.port import (
    BASE_SLOT,
    AdapterSpec,
    EngineFailed,
    EngineInfo,
    EngineLoad,
    EngineRequest,
    HostAdapter,
    OnStep,
    Probe,
    StepToken,
)
from services.replica_worker.engine.rate import RateMeter

from .adapter import TorchAdapter, read_adapter
from .build import Parts, build
from .policy import TorchPolicy
from .sequence import Sequence
from .stepper import Outcome
from .thread import StepThread


class TorchEngine:
    """Failures: a failed step ends the requests that were in it with an error token and the engine goes
    on; after several in a row it is broken: every request ends with an error token, and `load_figures`
    and every later call that can raise raise EngineFailed."""

    def __init__(self, folder: Path, policy: TorchPolicy) -> None:
        self._folder = folder
        self._policy = policy
        self._parts: Parts | None = None
        self._thread: StepThread | None = None
        self._failure: EngineFailed | None = None
        self._live: dict[str, Sequence] = {}
        self._probes: dict[Sequence, asyncio.Future[Probe]] = {}
        self._users_of_slot: Counter[int] = Counter()
        self._filled_slots: set[int] = set()
        self._rate = RateMeter()

    async def start(self, on_step: OnStep) -> EngineInfo:
        self._on_step = on_step
        self._parts = await asyncio.to_thread(self._build)
        self._loading = asyncio.Lock()
        self._thread = StepThread(self._parts.stepper, self._policy.threads, self._on_outcomes, self._on_failure)
        self._thread.start()
        return self._parts.info

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        await asyncio.to_thread(thread.stop)
        self._fail_probes(EngineFailed("the engine was closed"))
        self._live.clear()
        self._users_of_slot.clear()
        self._filled_slots.clear()
        self._parts = None

    async def read(self, path: Path, spec: AdapterSpec) -> TorchAdapter:
        return await asyncio.to_thread(read_adapter, path, spec, self._started().limits)

    async def load(self, slot: int, adapter: HostAdapter) -> None:
        """Raises ValueError, and changes nothing, if a request is on the slot."""
        if not isinstance(adapter, TorchAdapter):
            raise TypeError(f"{type(adapter).__name__} was not read by this engine")
        await self._write(slot, adapter)

    async def clear(self, slot: int) -> None:
        """Raises ValueError, and changes nothing, if a request is on the slot."""
        await self._write(slot, None)

    def submit(self, request: EngineRequest) -> None:
        """Raises ValueError for an id that is live: two streams under one name cannot be told apart."""
        if request.request_id in self._live:
            raise ValueError(f"request {request.request_id} is already running")
        sequence = Sequence(request)
        self._live[request.request_id] = sequence
        self._users_of_slot[request.slot] += 1
        if why := self._refusal(request):
            error = StepToken(request.request_id, -1, request.first_position, error=why)
            asyncio.get_running_loop().call_soon(self._on_outcomes, [(sequence, error)])
        elif self._thread:
            self._thread.post(lambda stepper: stepper.submit(sequence))

    def abort(self, request_id: str) -> None:
        sequence = self._live.get(request_id)
        if sequence is None:
            return
        self._end(sequence)
        if self._thread:
            self._thread.post(lambda stepper: stepper.abort(sequence))

    async def probe(self, prompt_token_ids: SequenceOf[int], slot: int, top: int = 20) -> Probe:
        """Joins the batch like any prompt. Raises ValueError when the prompt or the slot cannot be run."""
        self._started()
        request = EngineRequest(
            request_id="", slot=slot, prompt_token_ids=prompt_token_ids, max_tokens=1,
            temperature=0.0, top_p=1.0, seed=0,
        )  # fmt: skip
        if why := self._refusal(request):
            raise ValueError(why)
        sequence = Sequence(request, probe_top=top)
        self._probes[sequence] = asyncio.get_running_loop().create_future()
        self._users_of_slot[slot] += 1
        assert self._thread is not None
        self._thread.post(lambda stepper: stepper.submit(sequence))
        try:
            return await self._probes[sequence]
        finally:
            self._probes.pop(sequence, None)
            self._users_of_slot[slot] -= 1
            if self._thread:
                self._thread.post(lambda stepper: stepper.abort(sequence))

    async def fingerprint(self, slot: int) -> str:
        return await asyncio.to_thread(self._started().slots.fingerprint, slot)

    def load_figures(self) -> EngineLoad:
        """Raises EngineFailed once the engine is broken."""
        parts = self._started()
        stepper, running = parts.stepper, len(parts.stepper.running)
        return EngineLoad(
            running=running,
            waiting=max(0, len(self._live) - running),
            tokens_in_flight=sum(_promised_tokens(sequence.request) for sequence in self._live.values()),
            kv_bytes_used=stepper.cached_tokens * parts.kv_bytes_per_token,
            steps=stepper.steps,
            tokens_per_s=self._rate.per_s(time.monotonic()),
        )

    def _build(self) -> Parts:
        if self._policy.threads:
            torch.set_num_threads(self._policy.threads)
        return build(self._folder, self._policy)

    def _started(self) -> Parts:
        if self._failure:
            raise self._failure
        if self._parts is None:
            raise EngineFailed("the engine is not started")
        return self._parts

    async def _write(self, slot: int, adapter: TorchAdapter | None) -> None:
        """Between the first and the last line the slot counts as empty, so no request can start on it."""
        slots = self._started().slots
        if not 0 <= slot < slots.count:
            raise ValueError(f"slot {slot} does not exist, there are {slots.count}")
        async with self._loading:
            if self._users_of_slot[slot]:
                raise ValueError(f"slot {slot} has {self._users_of_slot[slot]} requests on it")
            self._filled_slots.discard(slot)
            if adapter is None:
                await asyncio.to_thread(slots.clear, slot)
            else:
                await asyncio.to_thread(slots.store, slot, adapter)
                self._filled_slots.add(slot)

    def _refusal(self, request: EngineRequest) -> str | None:
        """Why a request cannot run at all, or None. Never answers from the base for a missing adapter."""
        if self._failure:
            return str(self._failure)
        if self._parts is None or self._thread is None:
            return "the engine is not started"
        info, prompt = self._parts.info, request.prompt_token_ids
        if request.slot != BASE_SLOT and request.slot not in self._filled_slots:
            return f"slot {request.slot} holds no adapter"
        if not 0 < len(prompt) < info.max_context_tokens:
            return f"a prompt of {len(prompt)} tokens is outside 1 to {info.max_context_tokens - 1}"
        if not 0 <= min(prompt) <= max(prompt) < info.vocabulary_size:
            return f"a prompt token is outside the vocabulary of {info.vocabulary_size}"
        return None if request.max_tokens > 0 else f"max_tokens is {request.max_tokens}"

    def _on_outcomes(self, outcomes: SequenceOf[Outcome]) -> None:
        tokens = []
        for sequence, outcome in outcomes:
            if sequence in self._probes:
                self._settle(self._probes[sequence], outcome)
            elif isinstance(outcome, StepToken) and self._live.get(outcome.request_id) is sequence:
                tokens.append(outcome)
                if outcome.finish or outcome.error:
                    self._end(sequence)
        if tokens:
            self._rate.add(len(tokens), time.monotonic())
            self._on_step(tokens)

    def _settle(self, probe: asyncio.Future[Probe], outcome: StepToken | Probe) -> None:
        if probe.done():
            return
        if isinstance(outcome, Probe):
            probe.set_result(outcome)
        else:
            probe.set_exception(EngineFailed(outcome.error or "the probe ended without a result"))

    def _on_failure(self, failure: EngineFailed) -> None:
        self._failure = failure
        self._fail_probes(failure)
        ended = [
            (sequence, StepToken(request_id, -1, sequence.next_position, error=str(failure)))
            for request_id, sequence in self._live.items()
        ]
        self._on_outcomes(ended)

    def _fail_probes(self, failure: EngineFailed) -> None:
        for probe in self._probes.values():
            if not probe.done():
                probe.set_exception(failure)

    def _end(self, sequence: Sequence) -> None:
        del self._live[sequence.request.request_id]
        self._users_of_slot[sequence.request.slot] -= 1


def _promised_tokens(request: EngineRequest) -> int:
    """Context so far plus what may still be produced: together always the prompt plus `max_tokens`."""
    return len(request.prompt_token_ids) + request.max_tokens
