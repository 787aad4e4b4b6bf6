"""What adapters do on this engine: on record, or learnt here, and whether a slot does it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from services.replica_worker.core import effect
from services.replica_worker.core.effect import Baseline, Distribution, Indeterminate, Mismatch, Seen
from services.replica_worker.engine.port import BASE_SLOT, Probe
from services.replica_worker.engine.watch import EngineWatch
from services.replica_worker.tiers.errors import EffectWrong
from services.replica_worker.tiers.ram import RamTier
from shared.messages.desired import AdapterRecord
from shared.messages.effects import AdapterEffect
from shared.messages.identity import AdapterKey
from shared.runtime.logs import get_logger

BY_PROBE, BY_BYTES, LEARNT = "by the probe", "by its bytes", "learnt here"
_COMPANY_TOKENS = (8, 40, 112)
"""Prompts beside which the base is probed: a product can have other last digits at another size."""
_DECIMALS = 5
_log = get_logger(__name__)


class Effects:
    """Effects are only comparable within one engine build and dtype. An adapter that was evaluated on another is
    checked byte for byte at its first load, and its effect learnt from it. `on_proven` is told how."""

    def __init__(self, watch: EngineWatch, ram: RamTier, on_proven: Callable[[str], None]) -> None:
        self._watch = watch
        self._ram = ram
        self._on_proven = on_proven
        self._learnt: dict[AdapterKey, AdapterEffect] = {}
        self._baseline: Baseline | None = None

    @property
    def engine(self) -> str:
        info = self._watch.info
        return f"{info.build}/{info.dtype}"

    async def prepare(self) -> None:
        """Measure the base, alone and in company: what differs then is this engine's noise. Once, before any
        request. Raises EngineFailed."""
        base = await self._probe(BASE_SLOT)
        beside = [await self._probe_beside(tokens) for tokens in _COMPANY_TOKENS]
        noise = max(effect.change(base, each) for each in beside)
        self._baseline = Baseline(dtype=self._watch.info.dtype, base=base, noise=noise)
        _log.info("effects can be proven", noise=noise, tolerance=self._baseline.tolerance.absolute)

    def ask(self, slot: int) -> asyncio.Task[Seen]:
        """Probe a slot, and hash it meanwhile if its engine can. The probe is in the engine once this returns; what
        goes wrong is raised by the await, when nothing of it is under way any more."""
        probe = self._probe(slot)
        return asyncio.create_task(self._see(slot, probe), name=f"probe of slot {slot}")

    def known(self, record: AdapterRecord) -> AdapterEffect | None:
        return effect.on_record(record.effects, self.engine) or self._learnt.get(record.key)

    def forget(self, key: AdapterKey) -> None:
        self._learnt.pop(key, None)

    async def check(self, record: AdapterRecord, slot: int, asked: Awaitable[Seen]) -> None:
        """Raises EffectWrong, and whatever kept the probe or the bytes from being had."""
        seen, expected = await asked, self.known(record)
        if expected is None:
            await self._learn(record, slot, seen)
            return
        found = seen.found
        verdict = effect.judge(expected, found, self._own().toward(expected))
        if isinstance(verdict, Mismatch):
            raise EffectWrong(
                f"{record.adapter_id} does not do here what is on record: {verdict.reason}",
                expected=effect.spelled(expected.token_ids, expected.logprobs),
                found=effect.spelled(found.token_ids, found.logprobs),
            )
        if seen.slot_digest or isinstance(verdict, Indeterminate):
            await self._compare_bytes(record, slot, seen, expected.slot_digest)
        self._on_proven(BY_BYTES if isinstance(verdict, Indeterminate) else BY_PROBE)

    async def measure(self, slot: int) -> AdapterEffect:
        """What stands in the slot and what it does, at this moment."""
        return await self._measured(slot, await self.ask(slot))

    async def _learn(self, record: AdapterRecord, slot: int, seen: Seen) -> None:
        """Only from bytes that are right: what is learnt from is trusted from then on."""
        await self._compare_bytes(record, slot, seen, effect.recorded_digest(record.fingerprint, self.engine))
        if seen.found.finite:  # requests on one that is not end with that reason, each by itself
            self._learnt[record.key] = await self._measured(slot, seen)
            _log.info("an effect was learnt here", adapter_id=record.adapter_id, engine=self.engine)
        self._on_proven(LEARNT)

    async def _measured(self, slot: int, seen: Seen) -> AdapterEffect:
        digest = seen.slot_digest or await self._watch.engine.fingerprint(slot)
        return effect.measured(self.engine, seen.found, self._own(), digest)

    async def _compare_bytes(self, record: AdapterRecord, slot: int, seen: Seen, expected: str) -> None:
        """Without a digest on record the file is read once more: the copy in RAM may be what is wrong."""
        engine = self._watch.engine
        expected = expected or await engine.expected_fingerprint(await self._ram.read_anew(record))
        found = seen.slot_digest or await engine.fingerprint(slot)
        if expected and found != expected:
            raise EffectWrong(
                f"what stands in the slot of {record.adapter_id} is not what was loaded",
                expected=f"slot digest {expected}",
                found=f"slot digest {found}",
            )

    async def _probe_beside(self, tokens: int) -> Distribution:
        info = self._watch.info
        prompt = (effect.probe_prompt(info.vocabulary_size) * tokens)[: min(tokens, info.max_context_tokens - 2)]
        found, _ = await asyncio.gather(self._probe(BASE_SLOT), self._watch.engine.probe(prompt, BASE_SLOT, effect.TOP))
        return found

    def _probe(self, slot: int) -> asyncio.Task[Distribution]:
        prompt = effect.probe_prompt(self._watch.info.vocabulary_size)
        try:
            probe = asyncio.ensure_future(self._watch.engine.probe(prompt, slot, effect.TOP))
        except Exception as error:
            probe = asyncio.get_running_loop().create_future()
            probe.set_exception(error)
        return asyncio.create_task(_read(probe))

    async def _see(self, slot: int, probe: asyncio.Task[Distribution]) -> Seen:
        if not self._watch.info.hashes_beside_steps:
            return Seen(found=await probe)
        hashing = asyncio.create_task(self._watch.engine.fingerprint(slot))
        await asyncio.gather(probe, hashing, return_exceptions=True)
        return Seen(found=probe.result(), slot_digest=hashing.result())

    def _own(self) -> Baseline:
        if self._baseline is None:
            raise RuntimeError("effects are measured against the base, which has not been measured")
        return self._baseline


async def _read(probe: asyncio.Future[Probe]) -> Distribution:
    found = await probe
    logprobs = tuple(round(logprob, _DECIMALS) for logprob in found.logprobs)
    return Distribution(finite=found.finite, token_ids=found.token_ids, logprobs=logprobs)
