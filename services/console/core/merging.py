"""What is to be merged, in the words of the folder or the registry that it comes from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from services.console.core.peft_folder import PeftConfig, UnclearConfig
from shared.expressions import ExpressionNotServed, NoExpression
from shared.lora_terms import Applied, PeftTerms, Targets, resolved

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


def terms_of_folder(config: PeftConfig, name: str, modules: Collection[str]) -> MergeTerms:
    """`modules` are those that the weights file has tensors for, by their whole names. Raises UnclearConfig for an
    expression that is not served, or that does not mean one of them."""
    said, ranks, alphas = config.target_modules, config.rank_pattern or {}, config.alpha_pattern or {}
    try:
        strays = _strays(said, modules)
        applied = resolved(
            PeftTerms(rank=config.r, alpha=config.lora_alpha, rank_pattern=ranks, alpha_pattern=alphas), modules
        )
    except (NoExpression, ExpressionNotServed) as error:
        raise UnclearConfig(f"An expression in adapter_config.json is not served: {error}.") from error
    if strays:
        raise UnclearConfig(f"{strays[0]} is in the file but not among the target modules.")
    return MergeTerms(
        adapter_id=name,
        rank=config.r,
        alpha=config.lora_alpha,
        target_modules=applied.target_modules if isinstance(said, str) else tuple(sorted(said)),
        use_rslora=config.use_rslora,
        rank_pattern=applied.rank_pattern,
        alpha_pattern=applied.alpha_pattern,
    )


def _strays(said: list[str] | str, modules: Collection[str]) -> list[str]:
    """The modules that an expression does not mean; a list is compared with the file by the merge itself."""
    if not isinstance(said, str):
        return []
    targets = Targets(said)
    return [module for module in modules if not targets.mean(module)]


def terms_of_record(answer: Any) -> MergeTerms:
    """Of the admin address's answer about one adapter: its targets and patterns as they are applied, where that is
    said. Raises msgspec.ValidationError for anything else."""
    applied = answer.get("applied") if isinstance(answer, dict) else None
    if applied is None:
        return msgspec.convert(answer, MergeTerms)
    plain = msgspec.structs.asdict(msgspec.convert(applied, Applied))
    return msgspec.convert({**answer, **plain}, MergeTerms)
