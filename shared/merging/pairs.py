"""The two halves of every module that an adapter file adapts, checked before anything is computed with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load

from shared.lora_names import is_plain_name, last_parts, parts_of, path_of
from shared.merging.terms import Terms, rank_of, scale_of

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class MergeRefused(Exception):
    """The adapter cannot be merged into this base; the message says why in one sentence."""


class Pair(msgspec.Struct, frozen=True):
    """`a` [r, in] and `b` [out, r] as they are in the file; `scale` is alpha / r or alpha / √r."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float

    @property
    def shape(self) -> tuple[int, int]:
        """Of the weight that it changes: (out, in)."""
        return self.b.shape[0], self.a.shape[1]


class AdapterFile(msgspec.Struct, frozen=True):
    """`pairs` by module, `model.layers.0.self_attn.q_proj`; `digest` is the SHA-256 (hex) of the file."""

    digest: str
    pairs: Mapping[str, Pair]


def read_pairs(path: Path, terms: Terms) -> AdapterFile:
    """The whole file, in memory. Raises MergeRefused naming the tensor or field that is wrong."""
    try:
        content = path.read_bytes()
        tensors = load(content)
    except OSError as error:
        raise MergeRefused(f"{path} cannot be read: {error.strerror or error}.") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise MergeRefused(f"{path} is not a whole safetensors file: {error}.") from error
    digest = hashlib.sha256(content).hexdigest()
    if terms.digest not in ("", digest):
        raise MergeRefused(f"{path} has the digest {digest[:12]}, {terms.adapter_id} has {terms.digest[:12]}.")
    _check_patterns(terms)
    halves = _halves(tensors)
    _check_targets(last_parts(halves), terms)
    return AdapterFile(digest, {module: _pair(module, sides, terms) for module, sides in sorted(halves.items())})


def modules_of(path: Path) -> tuple[str, ...]:
    """The modules that a file has LoRA tensors for, by their whole names; its other tensors are left out.

    Blocking. Raises MergeRefused.
    """
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
    except OSError as error:
        raise MergeRefused(f"{path} cannot be read: {error.strerror or error}.") from error
    except SafetensorError as error:
        raise MergeRefused(f"{path} is not a whole safetensors file: {error}.") from error
    parts = [parts for name in names if (parts := parts_of(name)) is not None]
    return tuple(sorted({path_of(layer, module) for layer, module, _ in parts}))


def _check_patterns(terms: Terms) -> None:
    for key in (*terms.rank_pattern, *terms.alpha_pattern):
        if not is_plain_name(key):
            raise MergeRefused(f"The pattern {key!r} is not a plain module name, which is all that is applied.")


def _halves(tensors: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    halves: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        parts = parts_of(name)
        if parts is None:
            raise MergeRefused(f"{name} is not a LoRA tensor of a layer's linear module: only those are merged.")
        if tensor.dtype not in _DTYPES or not bool(tensor.isfinite().all()):
            raise MergeRefused(f"{name} must be finite 16- or 32-bit floats.")
        layer, module, side = parts
        halves.setdefault(path_of(layer, module), {})[side] = tensor
    return halves


def _check_targets(present: set[str], terms: Terms) -> None:
    """Every module of the file is a target and every target has tensors: nothing is dropped silently."""
    named = last_parts(terms.target_modules)
    for module in sorted(present - named):
        raise MergeRefused(f"{module} is in the file but not among the target modules.")
    for module in sorted(named - present):
        raise MergeRefused(f"{module} is a target module but the file has no tensors for it.")
    if not present:
        raise MergeRefused("The adapter file holds no tensors.")


def _pair(module: str, sides: Mapping[str, torch.Tensor], terms: Terms) -> Pair:
    for side in "AB":
        if side not in sides:
            raise MergeRefused(f"{module}.lora_{side} is missing beside its other half.")
    a, b, rank = sides["A"], sides["B"], rank_of(terms, module)
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != rank or b.shape[1] != rank or rank < 1:
        raise MergeRefused(f"{module} has A {tuple(a.shape)} and B {tuple(b.shape)}, but its rank is {rank}.")
    return Pair(a, b, scale_of(terms, module))
