"""How fast the reference engine is by itself, in this process: `python -m services.replica_worker.engine.measure`.

Prints one JSON object: decode tokens/s by rows and distinct adapters, and the time to first token of a prompt that
finds its adapter in a slot. The adapters are PEFT folders given on the command line, the first ones used first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from services.replica_worker.engine.port import BASE_SLOT, AdapterSpec, EngineRequest, StepToken
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from shared.base_model import base_model_hash

PROMPT_TOKENS = 32
DECODE_TOKENS = 48
TTFT_SAMPLES = 40


class Bench:
    """One engine and the tokens that come out of it."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine
        self._round = 0
        self._left: dict[str, int] = {}
        self._waiting_first: set[str] = set()
        self._all_running_at_s = 0.0
        self._tokens_since = 0
        self._done = asyncio.Event()

    def on_step(self, tokens: Sequence[StepToken]) -> None:
        running = not self._waiting_first
        self._tokens_since += len(tokens) if running else 0
        self._waiting_first -= {token.request_id for token in tokens}
        if not running and not self._waiting_first:
            self._all_running_at_s = time.perf_counter()
        for token in tokens:
            if token.error:
                raise RuntimeError(token.error)
            if token.finish:
                del self._left[token.request_id]
        if not self._left:
            self._done.set()

    async def decode(self, slots: Sequence[int]) -> float:
        """Tokens/s of len(slots) rows, from the step after which all of them run until the last ends."""
        await self._run(slots, PROMPT_TOKENS, DECODE_TOKENS)
        return self._tokens_since / (time.perf_counter() - self._all_running_at_s)

    async def first_token_s(self, slot: int, prompt_tokens: int) -> float:
        began_s = time.perf_counter()
        await self._run([slot], prompt_tokens, 1)
        return time.perf_counter() - began_s

    async def _run(self, slots: Sequence[int], prompt_tokens: int, max_tokens: int) -> None:
        self._round += 1
        requests = [_request(f"{self._round}-{row}", slot, prompt_tokens, max_tokens) for row, slot in enumerate(slots)]
        self._left = {request.request_id: max_tokens for request in requests}
        self._waiting_first, self._tokens_since = set(self._left), 0
        self._done.clear()
        for request in requests:
            self._engine.submit(request)
        await self._done.wait()


def _request(name: str, slot: int, prompt_tokens: int, max_tokens: int) -> EngineRequest:
    prompt = [(7 * at + 11 * len(name)) % 1000 + 100 for at in range(prompt_tokens)]
    return EngineRequest(
        request_id=name,
        slot=slot,
        prompt_token_ids=prompt,
        max_tokens=max_tokens,
        temperature=0.0,
        top_p=1.0,
        seed=0,
        ignore_eos=True,
        cache_salt=name,  # the same tokens, and yet every prompt is computed
    )


async def measure(model: Path, adapters: Sequence[Path], threads: int, prompt_tokens: int) -> dict[str, float]:
    """Every figure of one engine on one model. Raises AdapterUnusable, EngineFailed."""
    policy = TorchPolicy(slots=len(adapters), rank_limit=16, max_rows=32, max_context_tokens=512, threads=threads)
    engine = TorchEngine(model, policy)
    bench = Bench(engine)
    await engine.start(bench.on_step)
    for slot, folder in enumerate(adapters):
        await engine.load(slot, await engine.read(folder / "adapter_model.safetensors", _spec(folder, model)))
    await bench.decode([BASE_SLOT] * 8)
    figures = {f"tokens_per_s.b{rows}": await bench.decode([0] * rows) for rows in (1, 8, 32)}
    figures["tokens_per_s.b32.base"] = await bench.decode([BASE_SLOT] * 32)
    for distinct in (1, 8, 32):
        figures[f"tokens_per_s.b32.d{distinct}"] = await bench.decode([row % distinct for row in range(32)])
    samples = [await bench.first_token_s(0, prompt_tokens) for _ in range(TTFT_SAMPLES)]
    figures["engine_ttft_s.p50"] = statistics.median(samples)
    await engine.close()
    return figures


def _spec(folder: Path, model: Path) -> AdapterSpec:
    config = json.loads((folder / "adapter_config.json").read_text())
    return AdapterSpec(
        adapter_id=folder.name,
        digest="0" * 64,
        base_model_hash=base_model_hash(model),
        rank=config["r"],
        alpha=float(config["lora_alpha"]),
        target_modules=tuple(config["target_modules"]),
    )


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m services.replica_worker.engine.measure")
    words.add_argument("model", type=Path)
    words.add_argument("adapters", type=Path, nargs="+", help="32 PEFT folders")
    words.add_argument("--threads", type=int, default=1)
    words.add_argument("--prompt-tokens", type=int, default=40)
    given = words.parse_args()
    print(json.dumps(asyncio.run(measure(given.model, given.adapters, given.threads, given.prompt_tokens)), indent=2))


if __name__ == "__main__":
    main()
