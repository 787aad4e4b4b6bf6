"""What is to be merged, in the words of the folder or the registry that it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from services.console.core.peft_folder import PeftConfig

_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initialisations that alter the base's weights: B·A belongs on the altered ones."""


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


def not_plain(config: PeftConfig) -> str | None:
    """Why W + scale·B·A is not what this adapter does although its tensors look like it; None if it is.

    The registry asks the same of an adapter before it is active; what a folder's tensors tell by their names, as
    DoRA's and biases do, is refused by the merge itself.
    """
    start = config.init_lora_weights
    if config.peft_type != "LORA":
        return f"it is {config.peft_type!r}, not LORA"
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        return f"it was initialised by {start!r}, which changes the base: convert it to plain LoRA"
    for name in ("fan_in_fan_out", "layer_replication", "alora_invocation_tokens"):
        if getattr(config, name):
            return f"{name} is set"
    return None


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
