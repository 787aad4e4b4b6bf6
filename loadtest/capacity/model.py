"""What a model's config.json says about its size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
TARGETS = ATTENTION + MLP

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


class NotPlannable(ValueError):
    """What was asked has no answer; says why in one sentence."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a Llama-like model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    """Values of one head."""
    mlp: int
    vocabulary: int
    tied: bool
    """The output layer is the input layer's table."""
    value_bytes: int

    def sides(self, target: str) -> tuple[int, int]:
        """Inputs and outputs of a matrix. Raises NotPlannable for one that such a model has not."""
        query, kv = self.heads * self.head, self.kv_heads * self.head
        found = {
            "q_proj": (self.hidden, query),
            "k_proj": (self.hidden, kv),
            "v_proj": (self.hidden, kv),
            "o_proj": (query, self.hidden),
            "gate_proj": (self.hidden, self.mlp),
            "up_proj": (self.hidden, self.mlp),
            "down_proj": (self.mlp, self.hidden),
        }.get(target)
        if found is None:
            raise NotPlannable(f"{target} is no target module; there are {', '.join(TARGETS)}.")
        return found


def read_model(path: Path) -> Model:
    """From a config.json, or the folder that it is in. Raises NotPlannable, naming what is wrong with it."""
    file = path / "config.json" if path.is_dir() else path
    try:
        said = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise NotPlannable(f"{file} cannot be read: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise NotPlannable(f"{file} is no config.json of a model: {error}.") from error
    try:
        return model_of(said)
    except NotPlannable as error:
        raise NotPlannable(f"{file} does not say enough: {error}") from error


def model_of(said: Mapping[str, Any]) -> Model:
    """From the keys of a config.json. Raises NotPlannable naming the key that is missing or no size."""
    heads = _size(said, "num_attention_heads")
    hidden = _size(said, "hidden_size")
    dtype = str(said.get("torch_dtype") or said.get("dtype") or "bfloat16")
    if dtype not in _BYTES:
        raise NotPlannable(f"torch_dtype {dtype} is none of {', '.join(_BYTES)}.")
    return Model(
        layers=_size(said, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_size(said, "num_key_value_heads", heads),
        head=_size(said, "head_dim", max(1, hidden // heads)),
        mlp=_size(said, "intermediate_size"),
        vocabulary=_size(said, "vocab_size"),
        tied=bool(said.get("tie_word_embeddings", False)),
        value_bytes=_BYTES[dtype],
    )


def _size(said: Mapping[str, Any], key: str, otherwise: int | None = None) -> int:
    value = otherwise if said.get(key) is None else said[key]
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise NotPlannable(f"{key} is {'missing' if value is None else f'{value!r}, not a size'}.")
