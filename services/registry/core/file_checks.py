"""What is wrong with the tensors of a weights file, measured against the announcement and the base model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from services.registry.core.defects import defect
from services.registry.core.safetensors_header import Header, Tensor
from services.registry.core.tensor_names import Half, Place, by_pattern, half_of, names_place, tensor_name
from shared.messages.adapters import AdapterRegistered, Defect
from shared.messages.desired import BaseModelRecord

_DTYPES = ("F16", "BF16", "F32")
_WHOLE_MODULES = ("modules_to_save", "lm_head", "embed_tokens", "wte", "lora_embedding")

Halves = Mapping[Half, Tensor]


def check_tensors(header: Header, announced: AdapterRegistered, base: BaseModelRecord | None) -> Iterator[Defect]:
    """Every tensor must be one half of a pair that a target module asks for, and no target may be without."""
    halves: dict[Half, Tensor] = {}
    for tensor in header.tensors:
        half = half_of(tensor.name)
        if half is None:
            yield _stray(tensor)
            continue
        halves[half] = tensor
        if tensor.dtype not in _DTYPES:
            message = f"Tensor {tensor.name!r} is {tensor.dtype}; weights are F16, BF16 or F32."
            yield defect("dtype_invalid", message, tensor.name)
    if not halves:
        yield defect("no_tensors", "The file holds no LoRA tensors of a Llama-family model.", "weights_uri")
    yield from _check_pairs(halves)
    yield from _check_targets({half.place for half in halves}, announced)
    if base is not None:
        yield from _check_against_base(halves, announced, base)


def check_finite(names: tuple[str, ...]) -> Iterator[Defect]:
    for name in names:
        yield defect("not_finite", f"Tensor {name!r} holds a NaN or an infinite value.", name)


def _stray(tensor: Tensor) -> Defect:
    name, parts = tensor.name, tensor.name.split(".")
    if "magnitude" in name:
        return defect("dora", f"Tensor {name!r} belongs to DoRA, which is not served.", name)
    if any(part.startswith(_WHOLE_MODULES) for part in parts):
        message = f"Tensor {name!r} replaces or adapts a module outside the layers; only linear layers are adapted."
        return defect("module_not_adaptable", message, name)
    if parts[-1] == "bias" or "bias" in parts:
        return defect("bias", f"Tensor {name!r} is a bias; adapters with biases are not served.", name)
    message = (
        f"Tensor {name!r} is none of base_model.model.model.layers.<n>.<self_attn|mlp>.<module>.lora_<A|B>.weight."
    )
    return defect("tensor_unknown", message, name)


def _check_pairs(halves: Halves) -> Iterator[Defect]:
    for half in halves:
        other = "B" if half.side == "A" else "A"
        if Half(half.place, other) not in halves:
            name, missing = tensor_name(half.place, half.side), tensor_name(half.place, other)
            yield defect("half_missing", f"Tensor {name!r} is there without {missing!r}.", name)


def _check_targets(places: set[Place], announced: AdapterRegistered) -> Iterator[Defect]:
    targets = announced.target_modules
    untargeted = sorted(place for place in places if not any(names_place(target, place) for target in targets))
    for place in untargeted:
        message = f"Module {place.path} is in the file but is none of the target modules."
        yield defect("module_not_targeted", message, "target_modules")
    for target in targets:
        if not any(names_place(target, place) for place in places):
            message = f"Target module {target!r} has no tensors in the file."
            yield defect("target_without_tensors", message, "target_modules")
    for field, pattern in (("rank_pattern", announced.rank_pattern), ("alpha_pattern", announced.alpha_pattern)):
        for name in pattern:
            if not any(names_place(name, place) for place in places):
                yield defect("pattern_unused", f"Pattern {name!r} means no module of the file.", field)


def _check_against_base(halves: Halves, announced: AdapterRegistered, base: BaseModelRecord) -> Iterator[Defect]:
    for half, tensor in halves.items():
        place = half.place
        shape = base.modules.get(place.module)
        if shape is None:
            message = f"Tensor {tensor.name!r} adapts module {place.module!r}, which {base.name} does not have."
            yield defect("module_unknown", message, tensor.name)
        elif place.layer >= base.layers:
            message = f"Tensor {tensor.name!r} adapts layer {place.layer}; {base.name} has {base.layers} layers."
            yield defect("layer_unknown", message, tensor.name)
        else:
            rank = by_pattern(announced.rank_pattern, place, announced.rank)
            wanted = (rank, shape.in_features) if half.side == "A" else (shape.out_features, rank)
            yield from _check_shape(tensor, wanted)


def _check_shape(tensor: Tensor, wanted: tuple[int, int]) -> Iterator[Defect]:
    if tensor.shape != wanted:
        found = list(tensor.shape)
        yield defect("shape_invalid", f"Tensor {tensor.name!r} has shape {found}, not {list(wanted)}.", tensor.name)
