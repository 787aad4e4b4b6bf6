"""Which layer and module a tensor of a PEFT LoRA file belongs to, and which modules a plain name means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

BLOCK_OF: Mapping[str, str] = {
    "q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
    "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp",
}  # fmt: skip
"""The linear layers of a Llama-family model, and the block in which each stands."""

_LORA = re.compile(
    r"base_model\.model\.model\.layers\.(0|[1-9]\d{0,4})\.((?:self_attn|mlp)\.\w+)\.lora_([AB])\.weight", re.ASCII
)
_PLAIN_NAME = re.compile(r"\w+(\.\w+)*", re.ASCII)

V = TypeVar("V")


class Place(msgspec.Struct, frozen=True, order=True):
    """One linear layer of the base model."""

    layer: int
    block: str
    module: str

    @property
    def path(self) -> str:
        return path_of(self.layer, f"{self.block}.{self.module}")


class Half(msgspec.Struct, frozen=True):
    """One of the two tensors of a place: `side` is "A" ([r, in]) or "B" ([out, r])."""

    place: Place
    side: str


def parts_of(tensor_name: str) -> tuple[int, str, str] | None:
    """(layer, `self_attn.q_proj`, side) of a LoRA tensor, None of any other.

    No two names have the same parts: "layers.07" is no way to write layer 7.
    """
    match = _LORA.fullmatch(tensor_name)
    if match is None:
        return None
    layer, module, side = match.groups()
    return int(layer), module, side


def half_of(tensor_name: str) -> Half | None:
    """The half that a tensor's name means, or None if it is no LoRA tensor of a Llama-family layer."""
    parts = parts_of(tensor_name)
    if parts is None:
        return None
    block, _, module = parts[1].partition(".")
    return Half(Place(parts[0], block, module), parts[2]) if BLOCK_OF.get(module, block) == block else None


def path_of(layer: int, module: str) -> str:
    """`model.layers.0.self_attn.q_proj` for layer 0 and `self_attn.q_proj`: what targets and patterns speak of."""
    return f"model.layers.{layer}.{module}"


def tensor_name(place: Place, side: str) -> str:
    return f"base_model.model.{place.path}.lora_{side}.weight"


def is_plain_name(name: str) -> bool:
    """Whether a target or pattern is a dotted module name, and no expression over such names."""
    return _PLAIN_NAME.fullmatch(name) is not None


def means(name: str, path: str) -> bool:
    """Whether a plain name means the module at this path: it is one of `ends_of(path)`."""
    return f".{path}".endswith(f".{name}")


def ends_of(path: str) -> Iterator[str]:
    """The plain names that mean the module at this path: the whole dotted name, and its ends after a dot."""
    while path:
        yield path
        path = path.partition(".")[2]


def by_pattern(patterns: Mapping[str, V], path: str, default: V) -> V:
    """The value of the first plain name that means the module at this path, as PEFT picks it."""
    return next((value for name, value in patterns.items() if means(name, path)), default)


def last_part(name: str) -> str:
    """The module that a dotted name ends in."""
    return name.rsplit(".", 1)[-1]


def last_parts(names: Iterable[str]) -> set[str]:
    return {last_part(name) for name in names}
