"""The built-in evaluation: a candidate against its base, on a few fixed prompts."""

from __future__ import annotations

import msgspec

from services.replica_worker.core.effect import Distribution
from services.replica_worker.core.evaluation import judge
from services.replica_worker.engine.port import BASE_SLOT, Probe
from services.replica_worker.means import Means
from services.replica_worker.tiers.errors import AdapterFailed
from shared.messages.desired import AdapterRecord
from shared.messages.operations import EvaluateAdapter, Evaluation

_PROMPTS = (
    "Hello!",
    "My order has not arrived. What can I do?",
    "List three colours.",
    "Write one sentence about the sea.",
    "What is 17 + 25?",
)


class Evaluator:
    def __init__(self, means: Means) -> None:
        self._by = means

    async def evaluate(self, ask: EvaluateAdapter, ids: tuple[str, ...]) -> Evaluation:
        """An adapter that cannot be applied anywhere has failed its evaluation. What another replica may not meet
        (a bad copy, no room, a broken engine) is raised: the registry asks again, here or elsewhere."""
        try:
            reference = await self._by.loader.acquire_proven(ask.record)
        except AdapterFailed as error:
            if error.elsewhere:
                raise
            return self._result(ask.record, passed=False, reason=str(error))
        try:
            pairs = [await self._pair(prompt, reference.slot) for prompt in _PROMPTS]
            effect = await self._by.effects.measure(reference.slot)
        finally:
            reference.release()
        verdict = judge(pairs)
        result = self._result(ask.record, passed=verdict.passed, reason=verdict.reason, change=verdict.largest_change)
        fingerprint = f"{effect.engine}/{effect.slot_digest}"
        return msgspec.structs.replace(
            result,
            fingerprint=fingerprint,
            effects=(effect,) if verdict.passed else (),
            finite=verdict.finite,
        )

    async def _pair(self, prompt: str, slot: int) -> tuple[Distribution, Distribution]:
        token_ids = self._by.tokenizer.encode_chat([{"role": "user", "content": prompt}])
        base = await self._by.watch.engine.probe(token_ids, BASE_SLOT)
        adapted = await self._by.watch.engine.probe(token_ids, slot)
        return _distribution(base), _distribution(adapted)

    def _result(self, record: AdapterRecord, *, passed: bool, reason: str, change: float = 0.0) -> Evaluation:
        return Evaluation(
            adapter_id=record.adapter_id,
            digest=record.digest,
            replica_id=self._by.identity.replica_id,
            passed=passed,
            reason=reason,
            engine_build=self._by.watch.info.build,
            largest_logprob_change=change,
        )


def _distribution(probe: Probe) -> Distribution:
    return Distribution(finite=probe.finite, token_ids=probe.token_ids, logprobs=probe.logprobs)
