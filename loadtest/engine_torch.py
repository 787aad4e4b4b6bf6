"""Our reference engine as a peer of the engine benchmark, driven through the worker's port alone."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from loadtest.engine_cases import (
    LOADS_PER_S,
    Answer,
    ColdStart,
    Decode,
    FirstToken,
    Gaps,
    Loads,
    Memory,
    Peer,
    Question,
)
from loadtest.engine_loads import Loader
from loadtest.engine_meter import Meter, Steps
from loadtest.engine_peer import own_stdout, serve, told
from services.replica_worker.core.effect import TOP, probe_prompt
from services.replica_worker.engine.port import AdapterSpec, Engine
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import ENVIRONMENT, TorchPolicy
from shared.base_model import base_model_hash

WEIGHTS = "adapter_model.safetensors"
SPARE_SLOTS = 8
"""Beyond those that hold adapters for decoding: where loads go while streams run."""


class TorchPeer:
    """A started engine with every slot but the spare ones filled."""

    def __init__(self, engine: Engine, peer: Peer) -> None:
        base_hash = base_model_hash(Path(peer.model))
        self._adapters = [(Path(folder) / WEIGHTS, spec_of(Path(folder), base_hash)) for folder in peer.adapters]
        self._engine = engine
        self._slots = peer.slots
        self._steps = Steps()
        self._meter = Meter(engine, self._steps)
        self._loader = Loader(engine, self._adapters, range(peer.slots, peer.slots + SPARE_SLOTS))

    async def start(self) -> str:
        """Returns the engine's name and build. Raises EngineFailed."""
        info = self._info = await self._engine.start(self._steps.on_step)
        for slot in range(self._slots):
            await self._engine.load(slot, await self._engine.read(*self._adapters[slot % len(self._adapters)]))
        return f"{info.name} ({info.build})"

    async def answer(self, question: Question) -> Answer:
        match question:
            case Decode():
                return await self._meter.decode(question)
            case FirstToken():
                return await self._meter.first_token(question)
            case Gaps():
                return await self._gaps(question)
            case ColdStart():
                return await self._cold_start(question)
            case Loads():
                with tempfile.TemporaryDirectory(prefix="lorafleet-tiers-") as folder:
                    return await self._loader.pairs(question, Path(folder))
            case Memory():
                host = await self._engine.read(*self._adapters[0])
                gc.collect()
                return [float(resident_bytes()), float(host.size_bytes)]

    async def _gaps(self, case: Gaps) -> Answer:
        every_s = {"none": None, "steady": 1 / LOADS_PER_S, "back_to_back": 0.0}[case.loading]
        async with self._meter.streams(range(case.rows), 32), self._loader.loading(every_s):
            stamps = [await self._meter.step_at_s() for _ in range(case.steps + 1)]
        return [after - before for before, after in pairwise(stamps)]

    async def _cold_start(self, case: ColdStart) -> Answer:
        began_s = time.perf_counter()
        slot = await self._loader.disk_to_slot()
        proof = self._proof(slot) if case.probe else None
        self._meter.submit_alone(slot, case.prompt_tokens)
        await self._meter.step_at_s()
        if proof:
            await proof
        return [time.perf_counter() - began_s]

    def _proof(self, slot: int) -> asyncio.Future[list[object]]:
        """What a worker waits for before the first token: the probe, and the slot's hash where the engine takes it
        beside steps. Both are under way once this returns."""
        probe = self._engine.probe(probe_prompt(self._info.vocabulary_size), slot, TOP)
        hashing = [self._engine.fingerprint(slot)] if self._info.hashes_beside_steps else []
        return asyncio.gather(probe, *hashing)


def spec_of(folder: Path, base_hash: str) -> AdapterSpec:
    """What a PEFT folder's config says, for the engine."""
    config = json.loads((folder / "adapter_config.json").read_text())
    return AdapterSpec(
        adapter_id=folder.name,
        digest=hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest(),
        base_model_hash=base_hash,
        rank=config["r"],
        alpha=float(config["lora_alpha"]),
        target_modules=tuple(config["target_modules"]),
    )


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    os.environ.update({**ENVIRONMENT, **os.environ})
    line, peer = own_stdout(), told()
    policy = TorchPolicy(
        slots=peer.slots + SPARE_SLOTS,
        rank_limit=peer.rank,
        max_context_tokens=peer.max_context_tokens,
        dtype=peer.dtype,
        threads=peer.threads,
    )
    with asyncio.Runner() as runner:
        engine = TorchEngine(Path(peer.model), policy)
        torch_peer = TorchPeer(engine, peer)
        build = runner.run(torch_peer.start())
        serve(line, build, lambda question: runner.run(torch_peer.answer(question)))
        runner.run(engine.close())


if __name__ == "__main__":
    main()
