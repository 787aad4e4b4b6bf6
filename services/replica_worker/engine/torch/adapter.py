"""A PEFT LoRA file, parsed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import torch

from services.replica_worker.engine.port import AdapterSpec, AdapterUnusable
from shared.lora_names import is_plain_name, last_parts, parts_of, path_of
from shared.merging import terms

from .config import MODULES, ModelConfig
from .stored import DTYPES, Stored, StoredFile, numbers_of, read_stored

Place = tuple[int, str]
"""(layer, module): where in the model a pair of tensors belongs."""


class FileModule(msgspec.Struct, frozen=True):
    """Where a file has `a` [rank, in] and `b` [out, rank]; `scale` is alpha / r or alpha / √r."""

    a: Stored
    b: Stored
    rank: int
    scale: float


class AdapterFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of which everything is checked but its numbers, which stand in `body`. `modules` has an entry for every
    place that it adapts, in order."""

    spec: AdapterSpec
    body: np.ndarray
    modules: Mapping[Place, FileModule]


class HostModule(msgspec.Struct, frozen=True):
    """`a` [in, r] and `b` [r, out] in the engine's dtype; `scale` is alpha / r or alpha / √r."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float


class CheckedAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds. `modules` has an entry for every place that it adapts."""

    spec: AdapterSpec
    modules: Mapping[Place, HostModule]


class AdapterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What this engine can apply: adapters of this base, up to this rank, as this dtype."""

    model: ModelConfig
    base_model_hash: str
    rank_limit: int
    dtype: torch.dtype


def read_file(path: Path, spec: AdapterSpec, limits: AdapterLimits) -> AdapterFile:
    """Read the whole file and check everything that could give wrong numbers later, but for the numbers themselves.

    Blocking. Raises AdapterUnusable with one sentence that names the tensor or the field.
    """
    _check_spec(spec, limits)
    stored = _stored(path)
    pairs = _pair_up(stored.tensors)
    _check_targets(pairs, spec)
    modules = {place: _module(place, pair, spec, limits) for place, pair in sorted(pairs.items())}
    return AdapterFile(spec=spec, body=stored.body, modules=modules)


def read_adapter(path: Path, spec: AdapterSpec, limits: AdapterLimits) -> CheckedAdapter:
    """`read_file`, and its numbers checked and as tensors of the engine's dtype.

    Blocking. Raises AdapterUnusable with one sentence that names the tensor or the field.
    """
    file = read_file(path, spec, limits)

    def side(place: Place, name: str, stored: Stored) -> torch.Tensor:
        converted = numbers_of(file.body, stored).to(limits.dtype)
        if not bool(converted.isfinite().all()):
            raise not_finite(place, name)
        return converted.t()

    modules = {
        place: HostModule(side(place, "A", module.a), side(place, "B", module.b), module.scale)
        for place, module in file.modules.items()
    }
    return CheckedAdapter(spec=spec, modules=modules)


def not_finite(place: Place, side: str) -> AdapterUnusable:
    """`side` is A or B. Numbers that leave the engine's dtype are not finite either."""
    return AdapterUnusable(f"layers.{place[0]}.{place[1]}.lora_{side} holds NaN or Inf")


def rank_of(spec: AdapterSpec, place: Place) -> int:
    """The rank of one module, `rank_pattern` applied."""
    return terms.rank_of(spec, path_of(*place))


def scale_of(spec: AdapterSpec, place: Place) -> float:
    """What B·A is multiplied with in one module."""
    return terms.scale_of(spec, path_of(*place))


def _check_spec(spec: AdapterSpec, limits: AdapterLimits) -> None:
    if spec.base_model_hash != limits.base_model_hash:
        raise AdapterUnusable(
            f"{spec.adapter_id} was trained on base {spec.base_model_hash}, this is {limits.base_model_hash}"
        )
    for key in (*spec.rank_pattern, *spec.alpha_pattern):
        if not is_plain_name(key):
            raise AdapterUnusable(f"the pattern {key!r} is not a plain module name, which is all that is applied")
    largest = max((spec.rank, *spec.rank_pattern.values()))
    smallest = min((spec.rank, *spec.rank_pattern.values()))
    if largest > limits.rank_limit or smallest < 1:
        wrong = largest if largest > limits.rank_limit else smallest
        raise AdapterUnusable(f"rank {wrong} is outside this pool's 1 to {limits.rank_limit}")


def _stored(path: Path) -> StoredFile:
    try:
        return read_stored(path)
    except OSError as error:
        raise AdapterUnusable(f"{path.name} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise AdapterUnusable(f"{path.name} is not a whole safetensors file: {error}") from error


def _pair_up(tensors: Mapping[str, Stored]) -> dict[Place, dict[str, Stored]]:
    pairs: dict[Place, dict[str, Stored]] = {}
    for name, tensor in tensors.items():
        parts = parts_of(name)
        if parts is None:
            raise AdapterUnusable(f"{name} is not a LoRA tensor that this engine applies")
        if tensor.dtype not in DTYPES:
            raise AdapterUnusable(f"{name} is {tensor.dtype}, not a 16- or 32-bit float")
        layer, module, side = parts
        pairs.setdefault((layer, module), {})[side] = tensor
    return pairs


def _check_targets(pairs: Mapping[Place, object], spec: AdapterSpec) -> None:
    """Every module of the file is a target and every target has tensors: nothing is dropped silently."""
    if not pairs:
        raise AdapterUnusable(f"{spec.adapter_id} holds no tensors")
    present = {module.split(".")[1] for _, module in pairs}
    named = last_parts(spec.target_modules)
    for module in sorted(present - named):
        raise AdapterUnusable(f"{module} is in the file but not among the target modules")
    for module in sorted(named - present):
        raise AdapterUnusable(f"{module} is a target module but the file has no tensors for it")


def _module(place: Place, pair: Mapping[str, Stored], spec: AdapterSpec, limits: AdapterLimits) -> FileModule:
    layer, module = place
    if module not in MODULES or layer >= limits.model.layers:
        raise AdapterUnusable(f"layers.{layer}.{module} does not exist in this base model")
    out, inner = limits.model.shape_of(module)
    rank = rank_of(spec, place)
    a, b = _side(pair, place, "A", (rank, inner)), _side(pair, place, "B", (out, rank))
    return FileModule(a, b, rank, scale_of(spec, place))


def _side(pair: Mapping[str, Stored], place: Place, side: str, shape: tuple[int, int]) -> Stored:
    name = f"layers.{place[0]}.{place[1]}.lora_{side}"
    if side not in pair:
        raise AdapterUnusable(f"{name} is missing beside its other half")
    if pair[side].shape != shape:
        raise AdapterUnusable(f"{name} is {pair[side].shape}, expected {shape}")
    return pair[side]
