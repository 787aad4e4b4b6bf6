"""From a model folder to the parts of a running engine; blocking, once per start."""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch

from services.replica_worker.engine.blocks import BLOCK_TOKENS, blocks_for
from services.replica_worker.engine.port import BASE_SLOT, EngineFailed, EngineInfo, EngineRequest, StepToken
from services.replica_worker.engine.schedule import Schedule, SchedulePolicy
from services.replica_worker.engine.sequence import Sequence
from shared.base_model import base_model_hash

from .adapter import AdapterLimits
from .cache import KvCache
from .config import ModelUnusable, read_config
from .eos import eos_token_ids
from .model import LlamaModel
from .policy import TorchPolicy
from .slots import AdapterSlots
from .stepper import Stepper
from .weights import read_weights

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    info: EngineInfo
    limits: AdapterLimits
    slots: AdapterSlots
    stepper: Stepper
    kv_bytes_per_token: int


def build(folder: Path, policy: TorchPolicy) -> Parts:
    """Load the base model, reserve slots and KV cache, run a first prompt.

    Raises EngineFailed with the reason in one sentence; nothing is kept then.
    """
    try:
        with torch.inference_mode():
            parts = _assemble(folder, policy)
            _warm_up(parts.stepper)
    except (EngineFailed, ModelUnusable, OSError, ValueError, RuntimeError) as error:
        raise EngineFailed(f"the base model in {folder} does not start: {error}") from error
    return parts


def _assemble(folder: Path, policy: TorchPolicy) -> Parts:
    config, dtype, device = read_config(folder), _DTYPES[policy.dtype], torch.device(policy.device)
    base_hash, eos = base_model_hash(folder), eos_token_ids(folder)
    weights = read_weights(folder, config, dtype, device)
    like = weights["model.embed_tokens.weight"]
    context_tokens = min(policy.max_context_tokens, config.max_context_tokens)
    slots = AdapterSlots(config, policy.slots, policy.rank_limit, like)
    blocks = policy.max_rows * blocks_for(context_tokens)
    cache = KvCache(config, blocks, like)
    model = LlamaModel(config, weights, slots.stacks, context_tokens)
    info = EngineInfo(
        name="torch",
        build=f"torch-{torch.__version__}-{device.type}",
        dtype=policy.dtype,
        base_model_hash=base_hash,
        slots=policy.slots,
        rank_limit=policy.rank_limit,
        max_rows=policy.max_rows,
        max_context_tokens=context_tokens,
        vocabulary_size=config.vocabulary_size,
        eos_token_ids=eos,
        kv_tokens=blocks * BLOCK_TOKENS,
    )
    schedule = Schedule(info, SchedulePolicy(prefill_chunk_tokens=policy.prefill_chunk_tokens, blocks=blocks))
    return Parts(
        info=info,
        limits=AdapterLimits(model=config, base_model_hash=base_hash, rank_limit=policy.rank_limit, dtype=dtype),
        slots=slots,
        stepper=Stepper(model, cache, schedule),
        kv_bytes_per_token=cache.bytes_per_token,
    )


def _warm_up(stepper: Stepper) -> None:
    """The first pass with and without adapters pays for what torch sets up lazily; no customer should.

    Raises EngineFailed if it does not come to an ordinary end: no customer's would.
    """
    for slot in (BASE_SLOT, 0):
        request = EngineRequest(
            request_id="warm-up",
            slot=slot,
            prompt_token_ids=(0,) * 4,
            max_tokens=2,
            temperature=0.0,
            top_p=1.0,
            seed=0,
            ignore_eos=True,
        )
        stepper.schedule.submit(Sequence(request))
    while stepper.schedule.busy:
        for _, outcome in stepper.step():
            if isinstance(outcome, StepToken) and outcome.error:
                raise EngineFailed(outcome.error)
