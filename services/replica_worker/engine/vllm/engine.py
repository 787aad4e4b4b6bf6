"""The production engine: the worker's port over vLLM's AsyncLLM.

vLLM evicts adapters without looking whether they run, keeps half of one whose load failed, and serves old
weights under an id that comes back. So it is never left to decide: it is told of no more adapters than it has
slots, each under an id of its own, and what really stands in its slots is looked at after every change.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

from services.replica_worker.engine.desk import Desk
from services.replica_worker.engine.figures import EngineLoad
from services.replica_worker.engine.grammar import Compiled, GrammarLost
from services.replica_worker.engine.port import (
    BASE_SLOT,
    AdapterSpec,
    AdapterUnusable,
    EngineFailed,
    EngineInfo,
    EngineRequest,
    HostAdapter,
    OnStep,
    Probe,
    StepToken,
)
from services.replica_worker.engine.sequence import Sequence
from services.replica_worker.engine.shaping import Grammar

from . import wording
from .adapter import VllmAdapter, prepare
from .answers import outcomes
from .build import Parts, build
from .core import Core, Outputs
from .flags import PROBE_TOKENS
from .places import Place, Places
from .policy import VllmPolicy
from .self_check import check_base_rows

_LOOK_S = 0.2
"""How often a dead core is looked for; the worker is to know within two seconds."""


class VllmEngine:
    """Failures: when vLLM's core dies, or its slots hold other adapters than ours, the engine is broken: every
    request ends with an error token, and `load_figures` and every later call that can raise raise EngineFailed."""

    def __init__(self, folder: Path, policy: VllmPolicy) -> None:
        self._folder = folder
        self._policy = policy
        self._places = Places()
        self._parts: Parts | None = None
        self._failure: EngineFailed | None = None
        self._watching: asyncio.Task[None] | None = None
        self._prepared = 0
        self._heard_by: OnStep = lambda tokens: None

    async def start(self, on_step: OnStep) -> EngineInfo:
        parts = self._parts = await asyncio.to_thread(build, self._folder, self._policy)
        self._desk = Desk(parts.info, lambda tokens: self._heard_by(tokens), self._enter, parts.core.abort)
        self._writing = asyncio.Lock()
        parts.core.begin(self._on_outputs)
        self._watching = asyncio.create_task(self._watch(parts.core), name="vllm-watch")
        try:
            await self._make_ready(parts)
            self._hear(on_step)
        except BaseException:
            await self.close()
            raise
        return parts.info

    async def close(self) -> None:
        parts, self._parts = self._parts, None
        if parts is None:
            return
        self._failure = self._failure or EngineFailed("the engine is closed")
        parts.core.give_up(self._failure)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._desk.close()
        await parts.core.close()
        await asyncio.to_thread(shutil.rmtree, self._policy.scratch_folder, ignore_errors=True)

    async def read(self, path: Path, spec: AdapterSpec) -> VllmAdapter:
        limits = self._started().limits
        self._prepared += 1
        return await asyncio.to_thread(prepare, path, spec, limits, self._policy.scratch_folder, self._prepared)

    async def load(self, slot: int, adapter: HostAdapter) -> None:
        """Raises ValueError, and changes nothing, if a request is on the slot."""
        if not isinstance(adapter, VllmAdapter):
            raise TypeError(f"{type(adapter).__name__} was not read by this engine")
        async with self._writing:
            await self._empty(slot, forget=False)
            place = self._places.take(slot, adapter)
            try:
                await asyncio.to_thread(adapter.offer, place.folder)
                await self._stand(place)
            except BaseException:
                await self._empty(slot, forget=True)
                raise
            self._desk.ledger.fill(slot, adapter.spec.digest)

    async def clear(self, slot: int) -> None:
        """Raises ValueError, and changes nothing, if a request is on the slot."""
        async with self._writing:
            await self._empty(slot, forget=True)

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
        if not 0 < top <= PROBE_TOKENS:
            raise ValueError(f"a probe of {top} tokens is outside 1 to {PROBE_TOKENS}")
        return self._desk.probe(prompt_token_ids, slot, top)

    async def fingerprint(self, slot: int) -> str:
        """Reads the slot between two steps: the batch waits while it is hashed."""
        core, place = self._started().core, self._places.of(slot)
        if place is None:
            return _total([] if slot == BASE_SLOT else ["empty"])
        return _total(await core.ask("fingerprint", place.lora_id))

    async def expected_fingerprint(self, adapter: HostAdapter) -> str:
        if not isinstance(adapter, VllmAdapter):
            raise TypeError(f"{type(adapter).__name__} was not read by this engine")
        of_workers = await self._started().core.ask("expected", str(adapter.weights))
        return _total(of_workers) if all(of_workers) else ""

    def load_figures(self) -> EngineLoad:
        """Raises EngineFailed once the engine is broken or closed."""
        parts, live = self._started(), len(self._desk.ledger.live)
        running = min(parts.core.running, live)
        return EngineLoad(
            running=running,
            waiting=live - running,
            tokens_in_flight=self._desk.ledger.tokens_in_flight,
            kv_bytes_used=round(parts.core.kv_share * parts.kv_bytes) if live else 0,
            steps=parts.core.steps,
            tokens_per_s=self._desk.tokens_per_s,
            kv_used_tokens=round(parts.core.kv_share * parts.info.kv_tokens) if live else 0,
        )

    def _hear(self, on_step: OnStep) -> None:
        self._heard_by = on_step

    def _started(self) -> Parts:
        if self._failure:
            raise self._failure
        if self._parts is None:
            raise EngineFailed("the engine is not started")
        return self._parts

    async def _make_ready(self, parts: Parts) -> None:
        await parts.core.ask("follow", parts.pid)
        await self._mend(parts)
        await check_base_rows(self, parts.info, parts.limits.model, self._hear, self._policy.scratch_folder)

    async def _mend(self, parts: Parts) -> None:
        await parts.core.ask("prepare_lora")

    async def _empty(self, slot: int, *, forget: bool) -> None:
        """Nothing of the slot's adapter is left in vLLM when this returns, also after a load that failed."""
        self._started()
        self._desk.ledger.check_writable(slot)
        self._desk.ledger.empty(slot)
        if (place := self._places.of(slot)) is not None:
            await self._ask("vacate", place.lora_id)
            self._places.leave(slot, forget=forget)

    async def _stand(self, place: Place) -> None:
        """Raises AdapterUnusable; EngineFailed if vLLM's slots are not what they should be."""
        core = self._started().core
        try:
            await core.add_adapter(place)
        except EngineFailed:
            raise
        except Exception as error:
            raise self._explained(error, place) from error
        for standing in await self._ask("standing"):
            if wrong := self._places.disagreement(set(standing)):
                self._fail(EngineFailed(wrong))
                raise EngineFailed(wrong)

    async def _ask(self, method: str, *args: object) -> list[Any]:
        """Of the worker, about its slots. One that cannot say breaks the engine."""
        try:
            return await self._started().core.ask(method, *args)
        except EngineFailed as failure:
            self._fail(failure)
            raise

    def _explained(self, error: Exception, place: Place) -> Exception:
        if trouble := self._started().core.trouble():
            self._fail(EngineFailed(trouble))
            return EngineFailed(trouble)
        return AdapterUnusable(f"vLLM cannot apply {place.adapter.spec.adapter_id}: {error}")

    def _enter(self, sequence: Sequence) -> None:
        parts, request = self._started(), sequence.request
        if (why := _not_begun(request)) is not None:
            error = StepToken(request.request_id, -1, request.first_position, error=why)
            asyncio.get_running_loop().call_soon(self._desk.deliver, [(sequence, error)])
            return
        place = None if request.slot == BASE_SLOT else self._places.of(request.slot)
        parts.core.add(sequence, _sampling(sequence, parts.info), place)

    def _on_outputs(self, outputs: Outputs) -> None:
        self._desk.deliver([outcome for sequence, output in outputs for outcome in outcomes(sequence, output)])

    async def _watch(self, core: Core) -> None:
        while self._failure is None:
            if trouble := core.trouble():
                self._fail(EngineFailed(trouble))
            await asyncio.sleep(_LOOK_S)

    def _fail(self, failure: EngineFailed) -> None:
        if self._failure is None:
            self._failure = failure
            self._desk.fail(failure)
            if self._parts is not None:
                self._parts.core.give_up(failure)


def _not_begun(request: EngineRequest) -> str | None:
    """Why the answer cannot go on under its schema: vLLM's worker could not say so."""
    grammar = None if request.shaping is None else request.shaping.grammar
    try:
        if isinstance(grammar, Compiled):
            grammar.begin(request.produced_token_ids)
    except GrammarLost as error:
        return str(error)
    return None


def _total(of_workers: SequenceOf[str]) -> str:
    return hashlib.sha256("".join(of_workers).encode()).hexdigest()


def _sampling(sequence: Sequence, info: EngineInfo) -> dict[str, object]:
    if sequence.probe_top:
        return wording.probing(sequence.probe_top)
    return wording.sampling(sequence.request, info.eos_token_ids, info.max_context_tokens)
