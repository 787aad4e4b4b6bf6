"""What is wrong with the tensors of a weights file, measured against the announcement and the base model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from services.registry.core.defects import defect, quoted
from services.registry.core.files.safetensors_header import Header, Tensor
from services.registry.core.files.stray_tensors import check_stray
from services.registry.core.files.target_checks import check_patterns, check_targets
from services.registry.core.files.terms import Terms
from shared.lora_names import Half, Place, half_of, tensor_name
from shared.lora_terms import Targets
from shared.messages.adapters import AdapterRegistered, Defect
from shared.messages.desired import BaseModelRecord

_DTYPES = ("F16", "BF16", "F32")

Halves = Mapping[Half, Tensor]


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What the tensors must agree with. `excluded` is what PEFT was told to leave out, `base` None for an unknown."""

    announced: AdapterRegistered
    terms: Terms
    base: BaseModelRecord | None
    excluded: Targets | None = None


def check_tensors(header: Header, expected: Expected) -> Iterator[Defect]:
    """Every tensor must be one half of a pair that a target module asks for, and no target may be without."""
    halves: dict[Half, Tensor] = {}
    for tensor in header.tensors:
        half = half_of(tensor.name)
        if half is None:
            yield from check_stray(tensor, expected.base)
            continue
        halves[half] = tensor
        yield from _check_dtype(tensor)
    places = {half.place for half in halves}
    if not halves:
        message = "The file holds no LoRA tensors of a Llama-family model."
        yield defect("no_tensors", message, "weights_uri", found=f"{len(header.tensors)} others", allowed="at least 2")
    yield from _check_pairs(halves)
    yield from check_targets(places, expected.announced, expected.terms, expected.base, expected.excluded)
    yield from check_patterns(places, expected.announced, expected.terms)
    if expected.base is not None:
        yield from _check_against_base(halves, expected, expected.base)


def check_finite(names: tuple[str, ...]) -> Iterator[Defect]:
    for name in names:
        message = f"Tensor {quoted(name)} holds a NaN or an infinite value."
        yield defect("not_finite", message, name, found="NaN or infinity", allowed="finite numbers")


def _check_dtype(tensor: Tensor) -> Iterator[Defect]:
    if tensor.dtype not in _DTYPES:
        message = f"Tensor {tensor.name!r} is {tensor.dtype}; weights are F16, BF16 or F32."
        yield defect("dtype_invalid", message, tensor.name, found=tensor.dtype, allowed=", ".join(_DTYPES))


def _check_pairs(halves: Halves) -> Iterator[Defect]:
    for half in halves:
        other = "B" if half.side == "A" else "A"
        if Half(half.place, other) not in halves:
            name, missing = tensor_name(half.place, half.side), tensor_name(half.place, other)
            message = f"Tensor {name!r} is there without {missing!r}."
            yield defect("half_missing", message, name, found=f"lora_{half.side} alone", allowed="lora_A and lora_B")


def _check_against_base(halves: Halves, expected: Expected, base: BaseModelRecord) -> Iterator[Defect]:
    ranks = _ranks({half.place for half in halves}, expected)
    for half, tensor in halves.items():
        place, name = half.place, tensor.name
        shape = base.modules.get(place.module)
        if shape is None:
            message = f"Tensor {name!r} adapts module {place.module!r}, which {base.name} does not have."
            yield defect("module_unknown", message, name, found=place.module, allowed=", ".join(sorted(base.modules)))
        elif place.layer >= base.layers:
            message = f"Tensor {name!r} adapts layer {place.layer}; {base.name} has {base.layers} layers."
            yield defect("layer_unknown", message, name, found=place.layer, allowed=f"0 to {base.layers - 1}")
        elif place in ranks:
            rank = ranks[place]
            wanted = (rank, shape.in_features) if half.side == "A" else (shape.out_features, rank)
            yield from _check_shape(tensor, wanted)


def _ranks(places: set[Place], expected: Expected) -> dict[Place, int]:
    """None if `rank_pattern` cannot be read: what it says is then not known of any place."""
    pattern, rank = expected.terms.ranks, expected.announced.rank
    return {} if pattern is None else {place: pattern.value(place.path, rank) for place in places}


def _check_shape(tensor: Tensor, wanted: tuple[int, int]) -> Iterator[Defect]:
    if tensor.shape != wanted:
        found, allowed = list(tensor.shape), list(wanted)
        message = f"Tensor {tensor.name!r} has shape {found}, not {allowed}."
        yield defect("shape_invalid", message, tensor.name, found=found, allowed=allowed)
