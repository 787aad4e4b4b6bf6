"""From PEFT's adapter_config.json to the body of a registration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.messages.adapters import AdapterRegistered


class UnclearConfig(ValueError):
    """The folder's adapter_config.json does not say what a registration needs; one sentence."""


class Identity:
    """What the caller adds to the folder: who owns it, what it is called, which base it was trained on."""

    def __init__(self, *, tenant_id: str, adapter_id: str, version: str, base_model_hash: str) -> None:
        self.tenant_id = tenant_id
        self.adapter_id = adapter_id
        self.version = version
        self.base_model_hash = base_model_hash


def registration(
    config: Mapping[str, Any], identity: Identity, weights_uri: str, checksum: str, alias: str | None
) -> AdapterRegistered:
    """The announcement for a folder as `save_pretrained` leaves it. Raises UnclearConfig.

    It only translates: whether the adapter is any good is for the registry to say.
    """
    return AdapterRegistered(
        adapter_id=identity.adapter_id,
        tenant_id=identity.tenant_id,
        version=identity.version,
        base_model_hash=identity.base_model_hash,
        rank=int(_needed(config, "r")),
        alpha=float(_needed(config, "lora_alpha")),
        target_modules=_targets(_needed(config, "target_modules")),
        weights_uri=weights_uri,
        checksum=checksum,
        use_rslora=bool(config.get("use_rslora", False)),
        rank_pattern=dict(config.get("rank_pattern") or {}),
        alpha_pattern=dict(config.get("alpha_pattern") or {}),
        alias=alias,
    )


def _needed(config: Mapping[str, Any], name: str) -> Any:
    if config.get(name) is None:
        raise UnclearConfig(f"adapter_config.json has no {name}, so it is no LoRA adapter as PEFT saves it.")
    return config[name]


def _targets(value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(sorted(value))
    raise UnclearConfig("target_modules in adapter_config.json must be a list of module names.")
