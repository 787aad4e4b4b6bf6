"""From a model folder and a policy to a running vLLM."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import torch
import vllm
from vllm.platforms import current_platform

from services.replica_worker.engine.grammars import Grammars
from services.replica_worker.engine.port import EngineFailed, EngineInfo
from services.replica_worker.engine.torch.adapter import AdapterLimits
from services.replica_worker.engine.torch.config import ModelConfig, ModelUnusable, read_config
from services.replica_worker.engine.torch.eos import eos_token_ids
from services.replica_worker.engine.torch.hardware import number_class
from shared.base_model import base_model_hash

from .core import Core
from .flags import engine_flags, rank_flag
from .policy import VllmPolicy

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    info: EngineInfo
    limits: AdapterLimits
    core: Core
    grammars: Grammars
    kv_bytes: int
    pid: int


def build(folder: Path, policy: VllmPolicy) -> Parts:
    """Blocking. Raises EngineFailed with one sentence; nothing is left running then."""
    try:
        config, base_hash, eos = read_config(folder), base_model_hash(folder), eos_token_ids(folder)
        context_tokens = min(policy.max_context_tokens, config.max_context_tokens)
        flags = engine_flags(folder, policy, context_tokens)
        shutil.rmtree(policy.scratch_folder, ignore_errors=True)
        policy.scratch_folder.mkdir(parents=True)
    except (OSError, ValueError, KeyError, ModelUnusable) as error:
        raise EngineFailed(str(error)) from error
    try:
        core = Core(flags)
    except Exception as error:
        raise EngineFailed(f"vLLM does not start with {folder.name}: {error}") from error
    info = EngineInfo(
        name="vllm",
        build=f"vllm-{vllm.__version__}-{_hardware()}-rank{rank_flag(policy.rank_limit)}",
        device="cpu" if current_platform.is_cpu() else current_platform.get_device_name(),
        dtype=policy.dtype,
        base_model_hash=base_hash,
        slots=policy.slots,
        rank_limit=policy.rank_limit,
        max_rows=policy.max_rows,
        max_context_tokens=context_tokens,
        vocabulary_size=config.vocabulary_size,
        eos_token_ids=eos,
        kv_tokens=core.kv_tokens,
    )
    limits = AdapterLimits(
        model=config, base_model_hash=base_hash, rank_limit=policy.rank_limit, dtype=_DTYPES[policy.dtype]
    )
    kv_bytes = core.kv_tokens * _kv_bytes_per_token(config, _DTYPES[policy.dtype])
    grammars = Grammars(folder, config.vocabulary_size, eos)
    grammars.prepare()
    return Parts(info=info, limits=limits, core=core, grammars=grammars, kv_bytes=kv_bytes, pid=os.getpid())


def _hardware() -> str:
    """Asked of vLLM where it is not a CPU: torch would open the device here, in a process that computes nothing."""
    if current_platform.is_cpu():
        return f"cpu-{number_class(torch.device('cpu'))}"
    capability = current_platform.get_device_capability()
    return f"{current_platform.device_type}-sm{capability.to_int() if capability else 'unknown'}"


def _kv_bytes_per_token(config: ModelConfig, dtype: torch.dtype) -> int:
    return 2 * config.layers * config.kv_heads * config.head_dim * dtype.itemsize
