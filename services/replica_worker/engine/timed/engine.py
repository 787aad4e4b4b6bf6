"""An engine without a model: real scheduling, a timing table, and a stream that says whose adapter it was.

It holds the port's promises (batching, slots, aborts, continuation), so everything around an engine can be
tested against it, and fleets of dozens of replicas fit on one machine.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence as SequenceOf
from pathlib import Path

from services.replica_worker.engine.blocks import BLOCK_TOKENS
from services.replica_worker.engine.desk import Desk
from services.replica_worker.engine.figures import EngineLoad
from services.replica_worker.engine.port import (
    BASE_SLOT,
    AdapterSpec,
    EngineFailed,
    EngineInfo,
    EngineRequest,
    HostAdapter,
    OnStep,
    Probe,
    StepToken,
)
from services.replica_worker.engine.schedule import Schedule, SchedulePolicy
from services.replica_worker.engine.sequence import Sequence
from services.replica_worker.engine.shaping import Grammar, GrammarUnusable

from .adapter import TimedAdapter, read_adapter
from .policy import TimedPolicy
from .stream import BASE_DIGEST, logprobs_of, probe_of, token_at


class TimedEngine:
    """Runs on the event loop alone, as one task; it never breaks by itself."""

    def __init__(self, policy: TimedPolicy) -> None:
        self._policy = policy
        self._info = _info(policy)
        self._digests: dict[int, str] = {}
        self._schedule = Schedule(self._info, _schedule_policy(policy))
        self._stepping: asyncio.Task[None] | None = None

    async def start(self, on_step: OnStep) -> EngineInfo:
        self._desk = Desk(self._info, on_step, self._enter, self._schedule.abort)
        self._work = asyncio.Event()
        self._link = asyncio.Lock()
        self._stepping = asyncio.create_task(self._run(), name="timed-engine")
        return self._info

    async def close(self) -> None:
        stepping, self._stepping = self._stepping, None
        if stepping is None:
            return
        stepping.cancel()
        await asyncio.wait([stepping])
        self._desk.close()

    async def read(self, path: Path, spec: AdapterSpec) -> TimedAdapter:
        """Any file will do; the base hash and the rank are checked as everywhere."""
        return await asyncio.to_thread(read_adapter, path, spec, self._policy)

    async def load(self, slot: int, adapter: HostAdapter) -> None:
        """Takes its turn on the link. Raises ValueError, and changes nothing, if a request is on the slot."""
        self._started()
        async with self._link:
            self._empty(slot)
            await asyncio.sleep(adapter.size_bytes / self._policy.link_bytes_per_s)
            self._digests[slot] = adapter.spec.digest
            self._desk.ledger.fill(slot, adapter.spec.digest)

    async def clear(self, slot: int) -> None:
        """Raises ValueError, and changes nothing, if a request is on the slot. Cached prefixes go with it."""
        self._started()
        async with self._link:
            former = self._empty(slot)
            if former:
                self._schedule.forget(former)

    async def understand(self, json_schema: str) -> Grammar:
        raise GrammarUnusable("this replica runs no model, so its answers follow no JSON schema")

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
        held = b"" if slot == BASE_SLOT else self._digests.get(slot, "empty").encode()
        return hashlib.sha256(held).hexdigest()

    async def expected_fingerprint(self, adapter: HostAdapter) -> str:
        return hashlib.sha256(adapter.spec.digest.encode()).hexdigest()

    def load_figures(self) -> EngineLoad:
        """Raises EngineFailed once the engine is closed."""
        self._started()
        return EngineLoad(
            running=len(self._schedule.running),
            waiting=len(self._schedule.waiting),
            tokens_in_flight=self._desk.ledger.tokens_in_flight,
            kv_bytes_used=self._schedule.tokens_held * self._policy.kv_bytes_per_token,
            steps=self._schedule.steps,
            tokens_per_s=self._desk.tokens_per_s,
            kv_used_tokens=self._schedule.tokens_held,
        )

    def _started(self) -> None:
        if self._stepping is None:
            raise EngineFailed("the engine is not running")

    def _empty(self, slot: int) -> str | None:
        self._desk.ledger.check_writable(slot)
        self._digests.pop(slot, None)
        return self._desk.ledger.empty(slot)

    def _enter(self, sequence: Sequence) -> None:
        self._schedule.submit(sequence)
        self._work.set()

    async def _run(self) -> None:
        while True:
            if not self._schedule.busy:
                self._work.clear()
                await self._work.wait()
            await self._step()

    async def _step(self) -> None:
        """Decide, take the table's time, then hand out the tokens of those who are still there."""
        pieces = self._schedule.begin_step()
        prompt_tokens = sum(piece.stop - piece.start for piece in pieces if piece.stop - piece.start > 1)
        await asyncio.sleep(self._policy.step_s + prompt_tokens / self._policy.prefill_tokens_per_s)
        self._desk.deliver([(sequence, self._outcome(sequence)) for sequence in self._schedule.advance(pieces)])

    def _outcome(self, sequence: Sequence) -> StepToken | Probe:
        request, digest = sequence.request, self._digest(sequence)
        if sequence.probe_top:
            self._schedule.release(sequence)
            return probe_of(self._policy, digest, request.prompt_token_ids, sequence.probe_top)
        token_id = token_at(self._policy, digest, request, sequence.next_position)
        return self._schedule.accept(sequence, token_id, logprobs_of(self._policy, digest, request, token_id))

    def _digest(self, sequence: Sequence) -> str:
        slot = sequence.request.slot
        return BASE_DIGEST if slot == BASE_SLOT else self._digests[slot]


def _schedule_policy(policy: TimedPolicy) -> SchedulePolicy:
    return SchedulePolicy(
        prefill_chunk_tokens=policy.prefill_chunk_tokens,
        blocks=policy.kv_tokens // BLOCK_TOKENS,
        prefix_cache=policy.prefix_cache,
    )


def _info(policy: TimedPolicy) -> EngineInfo:
    return EngineInfo(
        name="timed",
        build="timed-1",
        dtype="none",
        base_model_hash=policy.base_model_hash,
        slots=policy.slots,
        rank_limit=policy.rank_limit,
        max_rows=policy.max_rows,
        max_context_tokens=policy.max_context_tokens,
        vocabulary_size=policy.vocabulary_size,
        eos_token_ids=policy.eos_token_ids,
        hashes_beside_steps=True,
        has_model=False,
        kv_tokens=policy.kv_tokens // BLOCK_TOKENS * BLOCK_TOKENS,
    )
