"""Before an engine is ready: does the base model answer as itself beside adapters?

Every slot is filled with an adapter of strong effect, and the base model is asked alone and in one batch with
them. What vLLM gets wrong there, it gets wrong for customers.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from services.replica_worker.engine.port import (
    BASE_SLOT,
    AdapterSpec,
    Engine,
    EngineFailed,
    EngineInfo,
    EngineRequest,
    OnStep,
    Probe,
    StepToken,
)
from services.replica_worker.engine.torch.config import ModelConfig

Hear = Callable[[OnStep], None]
"""Says who hears the engine's tokens from now on."""
_PROMPT_TOKENS = 8
_ENDLESS_TOKENS = 1_000
_ROWS_BESIDE = 3
_SMALL_SHARE = 0.1
"""Of the adapter's own effect: what rounding may move the base by. The fault moves it by the whole."""


class Beside:
    """Adapter rows that decode while the base model is asked; `on_step` hears them."""

    def __init__(self, engine: Engine, prompt: Sequence[int], slots: int) -> None:
        self._engine = engine
        self._requests = [_endless(f"check-{at}", at % slots, prompt) for at in range(_ROWS_BESIDE)]
        self._decoding = asyncio.Event()
        self._heard: set[str] = set()
        self._ended: set[str] = set()

    def on_step(self, tokens: Sequence[StepToken]) -> None:
        self._heard |= {token.request_id for token in tokens}
        self._ended |= {token.request_id for token in tokens if token.finish or token.error}
        if len(self._heard) == len(self._requests):
            self._decoding.set()

    async def ask_among(self, prompt: Sequence[int]) -> Probe:
        """Raises EngineFailed if the rows did not last as long as the question."""
        for request in self._requests:
            self._engine.submit(request)
        await self._decoding.wait()
        answer = await self._engine.probe(prompt, BASE_SLOT)
        if self._ended:
            raise EngineFailed("the check of base rows says nothing: the rows beside it had ended")
        for request in self._requests:
            self._engine.abort(request.request_id)
        return answer


async def check_base_rows(engine: Engine, info: EngineInfo, model: ModelConfig, hear: Hear, folder: Path) -> None:
    """Leaves every slot empty. Raises EngineFailed if base rows of a mixed batch are not the base's."""
    prompt = [at % info.vocabulary_size for at in range(1, _PROMPT_TOKENS + 1)]
    adapter = await engine.read(*await asyncio.to_thread(_write, folder, info, model))
    alone = await engine.probe(prompt, BASE_SLOT)
    for slot in range(info.slots):
        await engine.load(slot, adapter)
    adapted = await engine.probe(prompt, 0)
    beside = Beside(engine, prompt, info.slots)
    hear(beside.on_step)
    among = await beside.ask_among(prompt)
    for slot in range(info.slots):
        await engine.clear(slot)
    _judge(alone, distance(alone, adapted), distance(alone, among))


def _judge(alone: Probe, effect: float, moved: float) -> None:
    if not alone.finite or effect == 0.0:
        raise EngineFailed(f"the check of base rows says nothing: its adapter moves the base by {effect:.3g}")
    if moved > _SMALL_SHARE * effect:
        raise EngineFailed(
            f"the base model beside adapters is not itself: its log-probabilities move by {moved:.3g}, "
            f"an adapter moves them by {effect:.3g}"
        )


def distance(one: Probe, other: Probe) -> float:
    """The largest difference of two distributions, over the tokens that are among the best of both or either;
    a token that one of them does not name has at most its smallest log-probability there."""
    left, right = (dict(zip(each.token_ids, each.logprobs, strict=True)) for each in (one, other))
    low_left, low_right = min(left.values()), min(right.values())
    return max(abs(left.get(token_id, low_left) - right.get(token_id, low_right)) for token_id in left | right)


def _endless(request_id: str, slot: int, prompt: Sequence[int]) -> EngineRequest:
    return EngineRequest(
        request_id=request_id,
        slot=slot,
        prompt_token_ids=prompt,
        max_tokens=_ENDLESS_TOKENS,
        temperature=0.0,
        top_p=1.0,
        seed=0,
        ignore_eos=True,
    )


def _write(folder: Path, info: EngineInfo, model: ModelConfig) -> tuple[Path, AdapterSpec]:
    """Rank 1 on every layer's down projection: strong enough to be told from rounding."""
    generator = torch.Generator().manual_seed(0)
    out, inner = model.shape_of("mlp.down_proj")
    tensors = {}
    for layer in range(model.layers):
        prefix = f"base_model.model.model.layers.{layer}.mlp.down_proj"
        tensors[f"{prefix}.lora_A.weight"] = torch.randn(1, inner, generator=generator)
        tensors[f"{prefix}.lora_B.weight"] = torch.randn(out, 1, generator=generator)
    path = folder / "check.safetensors"
    save_file(tensors, str(path))
    spec = AdapterSpec(
        adapter_id="self-check",
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        base_model_hash=info.base_model_hash,
        rank=1,
        alpha=1.0,
        target_modules=("down_proj",),
    )
    return path, spec
