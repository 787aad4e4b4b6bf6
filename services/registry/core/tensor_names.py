"""Which layer and module a tensor of a PEFT LoRA file belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

_LORA = re.compile(
    r"base_model\.model\.model\.layers\.(0|[1-9]\d{0,4})\.(self_attn|mlp)\.(\w+)\.lora_([AB])\.weight", re.ASCII
)
_PLAIN_NAME = re.compile(r"\w+(\.\w+)*", re.ASCII)
_BLOCK_OF = {
    "q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
    "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp",
}  # fmt: skip

V = TypeVar("V")


class Place(msgspec.Struct, frozen=True, order=True):
    """One linear layer of the base model."""

    layer: int
    block: str
    module: str

    @property
    def path(self) -> str:
        return f"model.layers.{self.layer}.{self.block}.{self.module}"


class Half(msgspec.Struct, frozen=True):
    """One of the two tensors of a place: `side` is "A" ([r, in]) or "B" ([out, r])."""

    place: Place
    side: str


def half_of(tensor_name: str) -> Half | None:
    """The half that a tensor's name means, or None if it is no LoRA tensor of a Llama-family layer.

    No two names mean the same half: "layers.07" is no way to write layer 7.
    """
    match = _LORA.fullmatch(tensor_name)
    if match is None:
        return None
    layer, block, module, side = match.groups()
    if _BLOCK_OF.get(module, block) != block:
        return None
    return Half(Place(int(layer), block, module), side)


def tensor_name(place: Place, side: str) -> str:
    return f"base_model.model.{place.path}.lora_{side}.weight"


def is_plain_name(name: str) -> bool:
    """Whether a target or pattern is a dotted module name; PEFT's regular expressions are not."""
    return _PLAIN_NAME.fullmatch(name) is not None


def names_place(name: str, place: Place) -> bool:
    """Whether a target or pattern means this place: its whole dotted name, or the end of it after a dot."""
    return f".{place.path}".endswith(f".{name}")


def by_pattern(patterns: Mapping[str, V], place: Place, default: V) -> V:
    """The first pattern that means this place, as PEFT picks it."""
    return next((value for name, value in patterns.items() if names_place(name, place)), default)


def last_parts(names: Iterable[str]) -> set[str]:
    """The modules that dotted names end in."""
    return {name.rsplit(".", 1)[-1] for name in names}
