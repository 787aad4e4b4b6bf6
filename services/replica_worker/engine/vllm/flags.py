"""Our settings in vLLM's words. `docs/vllm.md` shows the same as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.replica_worker.engine.torch.config import MODULES

from .policy import VllmPolicy

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What `max_lora_rank` may be; vLLM pads every adapter to it."""
PROBE_TOKENS = 64
"""The longest next-token distribution that `probe` can ask for."""
_PACKAGE = "services.replica_worker.engine.vllm"


def rank_flag(rank_limit: int) -> int:
    """The smallest `max_lora_rank` that holds `rank_limit`. Raises ValueError if there is none."""
    fitting = [rank for rank in RANKS if rank >= rank_limit]
    if not fitting:
        raise ValueError(f"vLLM applies ranks up to {RANKS[-1]}, not {rank_limit}")
    return fitting[0]


def engine_flags(folder: Path, policy: VllmPolicy, context_tokens: int) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs. Raises ValueError for a rank limit that vLLM does not have."""
    kv = {"kv_cache_memory_bytes": policy.kv_budget_bytes} if policy.kv_budget_bytes else {}
    return {
        "model": str(folder),
        "load_format": "safetensors",
        "trust_remote_code": False,
        "skip_tokenizer_init": True,  # text is the worker's
        "generation_config": "vllm",  # and so are sampling defaults
        "dtype": policy.dtype,
        "max_model_len": context_tokens,
        "max_num_seqs": policy.max_rows,
        "max_logprobs": PROBE_TOKENS,
        "logprobs_mode": "processed_logprobs",  # after what our logits processor does
        "disable_log_stats": True,
        **_lora_flags(policy),
        **_batch_flags(policy),
        **kv,
    }


def _lora_flags(policy: VllmPolicy) -> dict[str, Any]:
    """As many adapters in host memory as there are slots: vLLM's own eviction then never has a reason."""
    return {
        "enable_lora": True,
        "max_loras": policy.slots,
        "max_cpu_loras": policy.slots,
        "max_lora_rank": rank_flag(policy.rank_limit),
        "lora_dtype": "auto",
        "lora_target_modules": sorted(module.rsplit(".", 1)[-1] for module in MODULES),
        "worker_extension_cls": f"{_PACKAGE}.extension.SlotWitness",
    }


def _batch_flags(policy: VllmPolicy) -> dict[str, Any]:
    """A step has room for every row, one chunk of a long prompt, and short prompts beside it."""
    return {
        "max_num_batched_tokens": policy.max_rows + 2 * policy.prefill_chunk_tokens,
        "long_prefill_token_threshold": policy.prefill_chunk_tokens,
        "block_size": policy.block_tokens,
        "enable_prefix_caching": True,
        "prefix_caching_hash_algo": "sha256",
        "scheduling_policy": "fcfs",
        # The draw of a token is keyed by its position, which has to be known when the step is prepared.
        "async_scheduling": False,
        "logits_processors": [f"{_PACKAGE}.keyed_sampling:KeyedSampling"],
    }


def environment(policy: VllmPolicy) -> dict[str, str]:
    """Variables that vLLM reads in this process and its children; to be set before vLLM is imported.

    Threads are counted, never bound to cores: two replicas of one machine would choose the same ones.
    """
    threads = {"OMP_NUM_THREADS": str(policy.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return {
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "",  # nothing is loaded because it happens to be installed
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # the other one has no logits processors and other LoRA tables
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "HF_HUB_OFFLINE": "1",
        **(threads if policy.threads else {}),
    }
