"""From PEFT's adapter_config.json to the body of a registration."""

from __future__ import annotations

import msgspec

from shared.messages.adapters import AdapterRegistered


class UnclearConfig(ValueError):
    """The folder's adapter_config.json does not say what a registration needs; one sentence."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller adds to the folder: who owns it, what it is called, which base it was trained on."""

    tenant_id: str
    adapter_id: str
    version: str
    base_model_hash: str


class PeftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a registration or a merge needs of adapter_config.json. Fields of type `object` are looked at by
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


def registration(
    config: PeftConfig, identity: Identity, weights_uri: str, checksum: str, alias: str | None
) -> AdapterRegistered:
    """The announcement for a folder as `save_pretrained` leaves it.

    It only translates: whether the adapter is any good is for the registry to say, and what an expression means.
    """
    targets = config.target_modules
    return AdapterRegistered(
        **msgspec.structs.asdict(identity),
        rank=config.r,
        alpha=config.lora_alpha,
        target_modules=targets if isinstance(targets, str) else tuple(sorted(targets)),
        weights_uri=weights_uri,
        checksum=checksum,
        use_rslora=config.use_rslora,
        rank_pattern=config.rank_pattern or {},
        alpha_pattern=config.alpha_pattern or {},
        alias=alias,
    )
