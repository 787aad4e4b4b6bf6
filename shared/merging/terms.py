"""How the two halves of an adapter are to be applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from shared.lora_names import by_pattern


class Terms(Protocol):
    """What is known of an adapter besides its tensors. `digest` and `base_model_hash` may be "": not known."""

    @property
    def adapter_id(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def base_model_hash(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def alpha(self) -> float: ...
    @property
    def target_modules(self) -> tuple[str, ...]: ...
    @property
    def use_rslora(self) -> bool: ...
    @property
    def rank_pattern(self) -> Mapping[str, int]: ...
    @property
    def alpha_pattern(self) -> Mapping[str, float]: ...


def rank_of(terms: Terms, module: str) -> int:
    """The rank of one module (`model.layers.0.self_attn.q_proj`), `rank_pattern` applied."""
    return int(by_pattern(terms.rank_pattern, module, terms.rank))


def scale_of(terms: Terms, module: str) -> float:
    """What B·A is multiplied with in one module: alpha / r, or alpha / √r for rsLoRA."""
    rank = rank_of(terms, module)
    alpha = by_pattern(terms.alpha_pattern, module, terms.alpha)
    return float(alpha / rank**0.5 if terms.use_rslora else alpha / rank)
