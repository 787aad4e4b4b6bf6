"""Runs inside vLLM's worker, on CPUs: rows of the base model beside LoRA rows.

vLLM 0.32 gives rows without an adapter the index -1, and its CPU operators take that for the last slot: the
base model then answers with somebody's adapter. Here the operators see only the rows that have one. Its CUDA
kernels leave such rows out by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import vllm
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu

BROKEN_VERSIONS = ("0.32.",)
"""Others are used as they are; whether they are right is found out at every start."""

Operator = Callable[..., None]


def mend() -> str:
    """Put corrected operators in the place of the broken ones, once. Returns what was done."""
    if not vllm.__version__.startswith(BROKEN_VERSIONS):
        return f"vLLM {vllm.__version__} is used as it is"
    for name, correct in _CORRECT.items():
        broken = getattr(lora_ops, name)
        if not hasattr(broken, "corrects"):
            _replace(name, correct(broken), broken)
    return f"the CPU operators of vLLM {vllm.__version__} leave out rows without an adapter"


def shrink(broken: Operator) -> Operator:
    def bgmv_shrink(
        inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, indices: torch.Tensor, scaling: float = 1.0
    ) -> None:
        rows = _adapted(indices)
        if rows is None:
            return broken(inputs, weights, output, indices, scaling)
        part = torch.zeros(len(rows), output.shape[1], dtype=output.dtype, device=output.device)
        if len(rows):
            broken(inputs[rows], weights, part, indices[rows], scaling)
        output.zero_()
        output[rows] = part
        return None

    return bgmv_shrink


def expand(broken: Operator) -> Operator:
    """Also of the sliced form, which takes two numbers more."""

    def bgmv_expand(
        inputs: torch.Tensor,
        weights: torch.Tensor,
        output: torch.Tensor,
        indices: torch.Tensor,
        *more: Any,
        **named: Any,
    ) -> None:
        rows = _adapted(indices)
        if rows is None:
            return broken(inputs, weights, output, indices, *more, **named)
        if len(rows):
            part = output[rows]
            broken(inputs[rows], weights, part, indices[rows], *more, **named)
            output[rows] = part
        return None

    return bgmv_expand


_CORRECT: dict[str, Callable[[Operator], Operator]] = {
    "bgmv_shrink": shrink,
    "bgmv_expand": expand,
    "bgmv_expand_slice": expand,
}


def _adapted(indices: torch.Tensor) -> torch.Tensor | None:
    """The rows that have an adapter, or None if all have one."""
    has_one = indices >= 0
    return None if bool(has_one.all()) else has_one.nonzero().squeeze(1)


def _replace(name: str, correct: Operator, broken: Operator) -> None:
    """In both modules: one imported the names of the other."""
    correct.corrects = broken  # type: ignore[attr-defined]
    setattr(lora_ops, name, correct)
    setattr(punica_cpu, name, correct)
