"""What is to be merged, in the words of the folder or the registry that it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from services.console.core.peft_folder import PeftConfig


class MergeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How an adapter is to be applied. `digest` and `base_model_hash` are "" where nobody has said them."""

    adapter_id: str
    digest: str = ""
    base_model_hash: str = ""
    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    use_rslora: bool = False
    rank_pattern: Mapping[str, int] = {}
    alpha_pattern: Mapping[str, float] = {}


def terms_of_folder(config: PeftConfig, name: str) -> MergeTerms:
    return MergeTerms(
        adapter_id=name,
        rank=config.r,
        alpha=config.lora_alpha,
        target_modules=tuple(sorted(config.target_modules)),
        use_rslora=config.use_rslora,
        rank_pattern=config.rank_pattern or {},
        alpha_pattern=config.alpha_pattern or {},
    )


def terms_of_record(answer: Any) -> MergeTerms:
    """Of the admin address's answer about one adapter. Raises msgspec.ValidationError for anything else."""
    return msgspec.convert(answer, MergeTerms)
