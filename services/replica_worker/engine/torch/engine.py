"""The reference engine: the worker's port over a stepping thread.

Everything here runs on the event loop and never waits for a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from pathlib import Path

import torch

from services.replica_worker.engine.desk import Desk
from services.replica_worker.engine.figures import EngineLoad
from services.replica_worker.engine.port import (
    AdapterSpec,
    EngineFailed,
    EngineInfo,
    EngineRequest,
    HostAdapter,
    OnStep,
    Probe,
)
from services.replica_worker.engine.sequence import Sequence
from services.replica_worker.engine.shaping import Grammar

from .adapter import read_file
from .build import Parts, build
from .layout import TorchAdapter, fingerprint_of, lay_out
from .policy import TorchPolicy
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

    async def start(self, on_step: OnStep) -> EngineInfo:
        self._parts = await asyncio.to_thread(self._build)
        self._desk = Desk(self._parts.info, on_step, self._post_submit, self._post_abort)
        self._writing = asyncio.Lock()
        self._thread = StepThread(self._parts.stepper, self._policy.threads, self._desk.deliver, self._on_failure)
        self._thread.start()
        return self._parts.info

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        await asyncio.to_thread(thread.stop)
        self._failure = EngineFailed("the engine is closed")
        self._desk.close()
        self._parts = None

    async def read(self, path: Path, spec: AdapterSpec) -> TorchAdapter:
        parts = self._started()

        def read() -> TorchAdapter:
            file, pinned = read_file(path, spec, parts.limits), self._policy.device != "cpu"
            return lay_out(file, parts.limits, parts.kernels, pinned)

        return await asyncio.to_thread(read)

    async def load(self, slot: int, adapter: HostAdapter) -> None:
        """Raises ValueError, and changes nothing, if a request is on the slot."""
        if not isinstance(adapter, TorchAdapter):
            raise TypeError(f"{type(adapter).__name__} was not read by this engine")
        await self._write(slot, adapter)

    async def clear(self, slot: int) -> None:
        """Raises ValueError, and changes nothing, if a request is on the slot."""
        await self._write(slot, None)

    async def understand(self, json_schema: str) -> Grammar:
        return await self._started().grammars.understand(json_schema)

    def submit(self, request: EngineRequest) -> None:
        """Raises ValueError for an id that is live; any other refusal comes as an error token."""
        self._started()
        self._desk.submit(request)

    def abort(self, request_id: str) -> None:
        self._desk.abort(request_id)

    def probe(self, prompt_token_ids: SequenceOf[int], slot: int, top: int = 20) -> asyncio.Future[Probe]:
        """Joins the batch like any prompt. Raises ValueError when the prompt or the slot cannot be run."""
        self._started()
        return self._desk.probe(prompt_token_ids, slot, top)

    async def fingerprint(self, slot: int) -> str:
        return await asyncio.to_thread(self._started().slots.fingerprint, slot)

    async def expected_fingerprint(self, adapter: HostAdapter) -> str:
        if not isinstance(adapter, TorchAdapter):
            raise TypeError(f"{type(adapter).__name__} was not read by this engine")
        self._started()
        return await asyncio.to_thread(fingerprint_of, adapter.weights, adapter.places, adapter.scales)

    def load_figures(self) -> EngineLoad:
        """Raises EngineFailed once the engine is broken or closed."""
        parts = self._started()
        schedule = parts.stepper.schedule
        return EngineLoad(
            running=len(schedule.running),
            waiting=max(0, len(self._desk.ledger.live) - len(schedule.running)),
            tokens_in_flight=self._desk.ledger.tokens_in_flight,
            kv_bytes_used=schedule.tokens_held * parts.kv_bytes_per_token,
            steps=schedule.steps,
            tokens_per_s=self._desk.tokens_per_s,
            kv_used_tokens=schedule.tokens_held,
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
        """While the copy runs the slot counts as empty, so no request can start on it. A caller who gives up waits for
        the copy all the same: a thread cannot be called back, and the next copy must come after it."""
        slots, ledger = self._started().slots, self._desk.ledger
        async with self._writing:
            ledger.check_writable(slot)
            former = ledger.empty(slot)
            if adapter is None:
                await _to_its_end(slots.clear, slot)
                if former and self._thread:
                    self._thread.post(lambda schedule: schedule.forget(former))
            else:
                await _to_its_end(slots.store, slot, adapter)
                ledger.fill(slot, adapter.spec.digest)

    def _post_submit(self, sequence: Sequence) -> None:
        if self._thread:
            self._thread.post(lambda schedule: schedule.submit(sequence))

    def _post_abort(self, sequence: Sequence) -> None:
        if self._thread:
            self._thread.post(lambda schedule: schedule.abort(sequence))

    def _on_failure(self, failure: EngineFailed) -> None:
        self._failure = failure
        self._desk.fail(failure)


async def _to_its_end(work: Callable[..., None], *arguments: object) -> None:
    """`work` on a thread. A cancellation takes effect when it is done."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise
