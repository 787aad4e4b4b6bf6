"""The reference engine: the worker's port over a stepping thread.

Everything here runs on the event loop and never waits for a step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence as SequenceOf
from pathlib import Path

import torch

from services.replica_worker.engine.ledger import Ledger
from services.replica_worker.engine.port import (
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
from services.replica_worker.engine.sequence import Sequence, probe_request

from .adapter import TorchAdapter, read_adapter
from .build import Parts, build
from .policy import TorchPolicy
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
        self._probes: dict[Sequence, asyncio.Future[Probe]] = {}
        self._rate = RateMeter()

    async def start(self, on_step: OnStep) -> EngineInfo:
        self._on_step = on_step
        self._parts = await asyncio.to_thread(self._build)
        self._ledger = Ledger(self._parts.info)
        self._writing = asyncio.Lock()
        self._thread = StepThread(self._parts.stepper, self._policy.threads, self._on_outcomes, self._on_failure)
        self._thread.start()
        return self._parts.info

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        await asyncio.to_thread(thread.stop)
        self._failure = EngineFailed("the engine is closed")
        self._fail_probes(self._failure)
        self._ledger.live.clear()
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
        """Raises ValueError for an id that is live; any other refusal comes as an error token."""
        self._started()
        sequence = Sequence(request)
        self._ledger.open(sequence)
        if why := self._ledger.refusal(request):
            error = StepToken(request.request_id, -1, request.first_position, error=why)
            asyncio.get_running_loop().call_soon(self._on_outcomes, [(sequence, error)])
        else:
            self._post_submit(sequence)

    def abort(self, request_id: str) -> None:
        sequence = self._ledger.close(request_id)
        if sequence is not None:
            self._post_abort(sequence)

    async def probe(self, prompt_token_ids: SequenceOf[int], slot: int, top: int = 20) -> Probe:
        """Joins the batch like any prompt. Raises ValueError when the prompt or the slot cannot be run."""
        self._started()
        request = probe_request(prompt_token_ids, slot)
        if why := self._ledger.refusal(request):
            raise ValueError(why)
        sequence = Sequence(request, probe_top=top)
        answer: asyncio.Future[Probe] = asyncio.get_running_loop().create_future()
        self._probes[sequence] = answer
        self._ledger.occupy(slot)
        self._post_submit(sequence)
        try:
            return await answer
        finally:
            del self._probes[sequence]
            self._ledger.vacate(slot)
            self._post_abort(sequence)

    async def fingerprint(self, slot: int) -> str:
        return await asyncio.to_thread(self._started().slots.fingerprint, slot)

    def load_figures(self) -> EngineLoad:
        """Raises EngineFailed once the engine is broken or closed."""
        parts = self._started()
        schedule = parts.stepper.schedule
        return EngineLoad(
            running=len(schedule.running),
            waiting=max(0, len(self._ledger.live) - len(schedule.running)),
            tokens_in_flight=self._ledger.tokens_in_flight,
            kv_bytes_used=schedule.cached_tokens * parts.kv_bytes_per_token,
            steps=schedule.steps,
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
        """While the copy runs the slot counts as empty, so no request can start on it."""
        slots = self._started().slots
        async with self._writing:
            self._ledger.check_writable(slot)
            self._ledger.filled_slots.discard(slot)
            if adapter is None:
                await asyncio.to_thread(slots.clear, slot)
            else:
                await asyncio.to_thread(slots.store, slot, adapter)
                self._ledger.filled_slots.add(slot)

    def _post_submit(self, sequence: Sequence) -> None:
        if self._thread:
            self._thread.post(lambda schedule: schedule.submit(sequence))

    def _post_abort(self, sequence: Sequence) -> None:
        if self._thread:
            self._thread.post(lambda schedule: schedule.abort(sequence))

    def _on_outcomes(self, outcomes: SequenceOf[Outcome]) -> None:
        tokens = []
        for sequence, outcome in outcomes:
            if sequence in self._probes:
                _answer(self._probes[sequence], outcome)
            elif isinstance(outcome, StepToken) and self._ledger.settle(sequence, outcome):
                tokens.append(outcome)
        if tokens:
            self._rate.add(len(tokens), time.monotonic())
            self._on_step(tokens)

    def _on_failure(self, failure: EngineFailed) -> None:
        self._failure = failure
        self._fail_probes(failure)
        live = list(self._ledger.live.items())
        self._on_outcomes([(seq, StepToken(id_, -1, seq.next_position, error=str(failure))) for id_, seq in live])

    def _fail_probes(self, failure: EngineFailed) -> None:
        for probe in self._probes.values():
            if not probe.done():
                probe.set_exception(failure)


def _answer(probe: asyncio.Future[Probe], outcome: StepToken | Probe) -> None:
    if probe.done():
        return
    if isinstance(outcome, Probe):
        probe.set_result(outcome)
    else:
        probe.set_exception(EngineFailed(outcome.error or "the probe ended without a result"))
