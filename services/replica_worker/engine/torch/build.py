"""From a model folder to the parts of a running engine; blocking, once per start."""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch

from services.replica_worker.engine.blocks import BLOCK_TOKENS, blocks_for
from services.replica_worker.engine.grammars import Grammars
from services.replica_worker.engine.port import EngineFailed, EngineInfo
from services.replica_worker.engine.schedule import BRIEF_ROWS, MOST_BRIEF_TOKENS, Schedule, SchedulePolicy
from shared.base_model import base_model_hash

from .adapter import AdapterLimits
from .cache import KvCache, bytes_per_token
from .config import ModelConfig, ModelUnusable, read_config
from .eos import eos_token_ids
from .hardware import device_name, number_class
from .kernels.choose import kernels_for, runner_for
from .kernels.port import MOST_RANKS, Kernels, Rope
from .layout import LAYOUT
from .model import LlamaModel, Tables
from .policy import TorchPolicy
from .rope import rope_tables
from .slots import AdapterSlots
from .stepper import Stepper
from .warm_up import warm_up
from .weights import read_weights
from .workspace import Workspace

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    info: EngineInfo
    limits: AdapterLimits
    kernels: Kernels
    slots: AdapterSlots
    stepper: Stepper
    grammars: Grammars
    kv_bytes_per_token: int


class _Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided before any memory is taken."""

    config: ModelConfig
    dtype: torch.dtype
    context_tokens: int
    blocks: int


def build(folder: Path, policy: TorchPolicy) -> Parts:
    """Load the base model, reserve slots and KV cache, run every size of step once.

    Raises EngineFailed with the reason in one sentence; nothing is kept then.
    """
    try:
        with torch.inference_mode():
            return _assemble(folder, policy)
    except (EngineFailed, ModelUnusable, OSError, ValueError, RuntimeError) as error:
        raise EngineFailed(f"the base model in {folder} does not start: {error}") from error


def _assemble(folder: Path, policy: TorchPolicy) -> Parts:
    sizes, device = _sizes(folder, policy), torch.device(policy.device)
    info = _info(folder, policy, sizes)
    kernels = kernels_for(device, policy.threads or torch.get_num_threads())
    weights = read_weights(folder, sizes.config, sizes.dtype, device)
    like = weights["model.embed_tokens.weight"]
    slots = AdapterSlots(sizes.config, policy.slots, policy.rank_limit, like, kernels)
    most_rows = policy.max_rows + policy.prefill_chunk_tokens + MOST_BRIEF_TOKENS
    workspace = Workspace(sizes.config, (most_rows, policy.max_rows + BRIEF_ROWS), like, kernels)
    cache = KvCache(sizes.config, sizes.blocks, like, kernels)
    tables = Tables(_rope(sizes, device, kernels), slots.stacks)
    model = LlamaModel(sizes.config, weights, tables, workspace, policy.packed_weights)
    runner = runner_for(device, model, workspace, blocks_for(sizes.context_tokens))
    warm_up(runner, cache, workspace)
    grammars = Grammars(folder, info.vocabulary_size, info.eos_token_ids)
    grammars.prepare()
    return Parts(
        info=info,
        limits=AdapterLimits(
            model=sizes.config,
            base_model_hash=info.base_model_hash,
            rank_limit=policy.rank_limit,
            dtype=sizes.dtype,
        ),
        kernels=kernels,
        slots=slots,
        stepper=Stepper(runner, cache, _schedule(info, policy, sizes.blocks)),
        grammars=grammars,
        kv_bytes_per_token=bytes_per_token(sizes.config, sizes.dtype),
    )


def _sizes(folder: Path, policy: TorchPolicy) -> _Sizes:
    """Raises ModelUnusable for a model or a budget that does not fit."""
    config, dtype = read_config(folder), _DTYPES[policy.dtype]
    if config.hidden % 16 or config.intermediate % 16 or config.head_dim % 32:
        raise ModelUnusable("hidden and intermediate sizes must be multiples of 16, head_dim of 32")
    if policy.rank_limit > MOST_RANKS:
        raise ModelUnusable(f"a rank limit of {policy.rank_limit} is above {MOST_RANKS}")
    context_tokens = min(policy.max_context_tokens, config.max_context_tokens)
    affordable = policy.kv_bytes // (bytes_per_token(config, dtype) * BLOCK_TOKENS)
    if affordable < blocks_for(context_tokens):
        raise ModelUnusable(
            f"a KV cache of {policy.kv_bytes} bytes holds {affordable * BLOCK_TOKENS} tokens, "
            f"fewer than one context of {context_tokens}"
        )
    blocks = min(affordable, policy.max_rows * blocks_for(context_tokens))
    return _Sizes(config=config, dtype=dtype, context_tokens=context_tokens, blocks=blocks)


def _info(folder: Path, policy: TorchPolicy, sizes: _Sizes) -> EngineInfo:
    device = torch.device(policy.device)
    return EngineInfo(
        name="torch",
        build=f"torch-{torch.__version__}-{device.type}-{number_class(device)}-layout{LAYOUT}",
        device=device_name(device),
        dtype=policy.dtype,
        base_model_hash=base_model_hash(folder),
        slots=policy.slots,
        rank_limit=policy.rank_limit,
        max_rows=policy.max_rows,
        max_context_tokens=sizes.context_tokens,
        vocabulary_size=sizes.config.vocabulary_size,
        eos_token_ids=eos_token_ids(folder),
        kv_tokens=sizes.blocks * BLOCK_TOKENS,
        hashes_beside_steps=device.type == "cpu",  # from elsewhere a slot has to be copied first
    )


def _rope(sizes: _Sizes, device: torch.device, kernels: Kernels) -> Rope:
    tables = rope_tables(sizes.config.rope, sizes.config.head_dim, sizes.context_tokens)
    return Rope(*(kernels.view(table.to(device)) for table in tables))


def _schedule(info: EngineInfo, policy: TorchPolicy, blocks: int) -> Schedule:
    return Schedule(
        info,
        SchedulePolicy(
            prefill_chunk_tokens=policy.prefill_chunk_tokens, blocks=blocks, prefix_cache=policy.prefix_cache
        ),
    )
