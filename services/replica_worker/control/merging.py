"""The start of a replica that serves one adapter alone, merged into its base's weights."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services.replica_worker.control.golden import check_base
from services.replica_worker.core import effect
from services.replica_worker.core.effect import Distribution
from services.replica_worker.core.merged import PROMPTS, Probed, telling, wrong_merge
from services.replica_worker.engine.port import BASE_SLOT, AdapterUnusable, Engine, EngineFailed, OnStep
from services.replica_worker.engine.watch import EngineWatch
from services.replica_worker.means import Means
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from services.replica_worker.tiers.ram import spec_of
from shared.base_model import base_model_hash
from shared.merging.folder import leftovers, merge_folder
from shared.merging.pairs import MergeRefused
from shared.messages.desired import AdapterRecord
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class MergePlan:
    """`unmerged` runs the base in `base_folder` with one slot, to compare with; the replica's own engine reads
    `folder`, which is written anew at every start."""

    record: AdapterRecord
    base_folder: Path
    folder: Path
    dtype: str
    """What merged weights are cast to: what the engine computes in."""
    unmerged: Engine


class Merging:
    """One engine after the other, so that no more than one model is in memory."""

    def __init__(self, means: Means, plan: MergePlan) -> None:
        self._by = means
        self._plan = plan
        self._prompts: list[Sequence[int]] = [
            means.tokenizer.encode_chat([{"role": "user", "content": prompt}]) for prompt in PROMPTS
        ]

    async def begin(self, on_step: OnStep) -> str:
        """Write the merged weights, start the replica's engine on them, and compare; returns the verdict on the
        base's golden prompt. Raises EngineFailed with one sentence: nothing may be served then."""
        record = self._plan.record
        try:
            async with self._by.loader.disk.checked(record) as path:
                golden, before = await self._unmerged(path)
                await asyncio.to_thread(self._write, path, self._plan.folder)
        except (AdapterFailed, AdapterUnavailable, AdapterUnusable, MergeRefused, OSError) as error:
            raise EngineFailed(f"{record.adapter_id} cannot be merged: {error}") from error
        await self._by.watch.begin(on_step, await asyncio.to_thread(base_model_hash, self._plan.folder))
        after = [await _ask(self._by.watch.engine, prompt, BASE_SLOT) for prompt in self._prompts]
        self._compare([Probed(base=b, unmerged=u, merged=m) for (b, u), m in zip(before, after, strict=True)])
        self._by.loader.serve_only(record.key)
        return golden

    async def _unmerged(self, path: Path) -> tuple[str, list[tuple[Distribution, Distribution]]]:
        """What the base says to its golden prompt; and to every prompt, what it says alone and with the adapter."""
        watch, engine = EngineWatch(self._plan.unmerged, _log.error), self._plan.unmerged
        try:
            await watch.begin(_hear_nothing, self._by.identity.base_model_hash)
            golden = await check_base(watch, self._plan.base_folder)
            await engine.load(0, await engine.read(path, spec_of(self._plan.record)))
            return golden, [
                (await _ask(engine, prompt, BASE_SLOT), await _ask(engine, prompt, 0)) for prompt in self._prompts
            ]
        finally:
            await engine.close()

    def _write(self, weights: Path, folder: Path) -> None:
        """Anew: of the bytes that an earlier process left nothing is known, and a killed one's halves are large."""
        for stale in (folder, *leftovers(folder)):
            if stale.exists():
                shutil.rmtree(stale)
        merged = merge_folder(self._plan.base_folder, weights, self._plan.record, folder, self._plan.dtype)
        _log.info("an adapter is merged in", adapter_id=merged.adapter_id, modules=len(merged.scales))

    def _compare(self, probed: list[Probed]) -> None:
        dtype, name = self._by.watch.info.dtype, self._plan.record.adapter_id
        if why := wrong_merge(probed, dtype):
            raise EngineFailed(f"{name} is merged wrongly: {why}")
        if not telling(probed, dtype):
            _log.warning("the adapter changes too little for its merge to be told from the base", adapter_id=name)


async def _ask(engine: Engine, prompt: Sequence[int], slot: int) -> Distribution:
    found = await engine.probe(prompt, slot, effect.TOP)
    return Distribution(finite=found.finite, token_ids=found.token_ids, logprobs=found.logprobs)


def _hear_nothing(tokens: object) -> None:
    """Nothing is generated there."""
