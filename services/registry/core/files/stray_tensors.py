"""Tensors of a weights file that are no half of a LoRA pair, by what they want instead."""

from __future__ import annotations

from collections.abc import Iterator

from services.registry.core.defects import defect, quoted
from services.registry.core.files.safetensors_header import Tensor
from shared.messages.adapters import Defect
from shared.messages.desired import BaseModelRecord

_WHOLE_MODULES = ("modules_to_save", "lm_head", "embed_tokens", "wte", "lora_embedding")
_OF_VOCABULARY = ("lm_head", "embed_tokens", "wte")
_PAIRS = "base_model.model.model.layers.<n>.<self_attn|mlp>.<module>.lora_<A|B>.weight"


def check_stray(tensor: Tensor, base: BaseModelRecord | None) -> Iterator[Defect]:
    """Why the tensor is refused; and, where it speaks of a vocabulary, whether that is the base's at all."""
    yield _refusal(tensor.name)
    rows, known = _vocabulary_rows(tensor), 0 if base is None else base.vocabulary_size
    if base is not None and known and rows not in (None, known):
        message = f"Tensor {quoted(tensor.name)} is for a vocabulary of {rows}; {base.name} has {known} tokens."
        yield defect("vocabulary_differs", message, tensor.name, found=rows, allowed=known)


def _refusal(name: str) -> Defect:
    parts, said = name.split("."), quoted(name)
    if "magnitude" in name:
        message = f"Tensor {said} belongs to DoRA, which is not served."
        return defect("dora", message, name, found="a DoRA magnitude", allowed=_PAIRS)
    if any(part.startswith(_WHOLE_MODULES) for part in parts):
        message = f"Tensor {said} replaces or adapts a module outside the layers; only linear layers are adapted."
        return defect("module_not_adaptable", message, name, found="a whole or an embedding module", allowed=_PAIRS)
    if "bias" in parts:
        message = f"Tensor {said} is a bias; adapters with biases are not served."
        return defect("bias", message, name, found="a bias", allowed=_PAIRS)
    return defect("tensor_unknown", f"Tensor {said} is none of {_PAIRS}.", name, found=name, allowed=_PAIRS)


def _vocabulary_rows(tensor: Tensor) -> int | None:
    """How many tokens the tensor has rows (or, as half A of an embedding, columns) for; None if it is not by token."""
    parts = tensor.name.split(".")
    if len(tensor.shape) != 2 or not any(part in _OF_VOCABULARY for part in parts):
        return None
    if "lora_embedding_A" in parts:
        return tensor.shape[1]
    return None if {"lora_A", "lora_embedding_B"} & set(parts) else tensor.shape[0]
