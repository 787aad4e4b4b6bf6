"""What a plan is made for: a model, its adapters, their traffic, and what a GPU, a link and an hour are worth."""

from __future__ import annotations

import math

import msgspec

from loadtest.capacity.model import TARGETS, Model, NotPlannable

GB = 1e9


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults are those of the spec's fleet A, a 7B model on GPUs with 80 GB. GB are 10^9 bytes."""

    model: Model
    adapters: int
    rate_per_s: float
    prompt_tokens: float
    output_tokens: float
    rank: int = 16
    targets: tuple[str, ...] = TARGETS
    zipf: float = 1.0
    """How skewed traffic is over adapters: the one of rank k gets a share ~ 1 / k^zipf."""
    objective_s: float = 1.0
    """For the p95 of the time to first token, of the fleet and of every customer."""

    gpu_bytes: float = 80 * GB
    work_bytes: float = 4 * GB
    """What activations, kernels and fragments take of a GPU."""
    rows: int = 32
    """Requests that one replica runs at once."""
    context_tokens: int = 2000
    """Reserved for each of them in the KV cache."""
    slot_cap: int = 250

    step_s: float = 0.050
    """One token for every row, with adapters."""
    merged_step_s: float = 0.040
    prefill_tokens_per_s: float = 8000.0
    chunk_tokens: int = 1024
    """Of prompts in a step. The engines' own 512 would make two steps of a prompt of fleet A."""
    replica_tokens_per_s: float | None = None
    """Measured at the objective, prompts included; instead of rows ÷ step and prefill."""
    headroom: float = 1.3
    owners: int = 2
    hot_tokens_per_s: float = 2000.0
    """A customer that has risen, to say how many owners it needs."""

    store_bytes_per_s: float = 0.2 * GB
    disk_bytes_per_s: float = 2 * GB
    gpu_link_bytes_per_s: float = 10 * GB
    base_bytes_per_s: float = 1 * GB
    usd_per_gpu_hour: float = 2.5


_POSITIVE = (
    *("adapters", "rate_per_s", "prompt_tokens", "output_tokens", "rank", "objective_s", "gpu_bytes", "rows"),
    *(
        "context_tokens",
        "slot_cap",
        "step_s",
        "merged_step_s",
        "prefill_tokens_per_s",
        "chunk_tokens",
        "owners",
        "hot_tokens_per_s",
    ),
    *("store_bytes_per_s", "disk_bytes_per_s", "gpu_link_bytes_per_s", "base_bytes_per_s"),
)
_NOT_NEGATIVE = ("zipf", "work_bytes", "usd_per_gpu_hour")


def check(question: Question) -> None:
    """Raises NotPlannable for the first number that no plan can be made with."""
    for name in _POSITIVE:
        if not getattr(question, name) > 0:
            raise NotPlannable(f"{name} is {getattr(question, name):g} and has to be above 0.")
    for name in _NOT_NEGATIVE:
        if not getattr(question, name) >= 0:
            raise NotPlannable(f"{name} is {getattr(question, name):g} and cannot be below 0.")
    for name in (*_POSITIVE, *_NOT_NEGATIVE, "headroom"):
        if not math.isfinite(getattr(question, name)):
            raise NotPlannable(f"{name} has to be a finite number.")
    if question.headroom < 1:
        raise NotPlannable(f"headroom is {question.headroom:g}; below 1 the fleet could not carry its own traffic.")
    if question.replica_tokens_per_s is not None and not 0 < question.replica_tokens_per_s < math.inf:
        raise NotPlannable("replica_tokens_per_s has to be above 0.")
    if not question.targets or len(set(question.targets)) < len(question.targets):
        raise NotPlannable("targets names no module, or one of them twice.")
    for target in question.targets:
        question.model.sides(target)
