"""PEFT's adapter_config.json, as far as a merge looks at it."""

from __future__ import annotations

import msgspec


class UnclearConfig(ValueError):
    """The folder's adapter_config.json does not say what a merge needs; one sentence."""


class PeftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge needs of adapter_config.json. Fields of type `object` are looked at by
    `core/merging.py` alone, and may hold anything in a folder that the registry is to judge."""

    r: int
    lora_alpha: float
    target_modules: list[str] | str
    use_rslora: bool = False
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None
    peft_type: object = "LORA"
    init_lora_weights: object = True
    fan_in_fan_out: object = False
    layer_replication: object = None
    alora_invocation_tokens: object = None


def peft_config(text: bytes) -> PeftConfig:
    """The content of adapter_config.json. Raises UnclearConfig naming the field that is missing or of another kind."""
    try:
        return msgspec.json.decode(text, type=PeftConfig)
    except msgspec.MsgspecError as error:
        reason = str(error).replace("`", "")
        raise UnclearConfig(f"adapter_config.json is no LoRA adapter's as PEFT saves it: {reason}.") from error
