"""The adapter_config.json beside a weights file: nothing in it may contradict the announcement.

The announcement decides; the file is read only because a disagreement means that one of the two is wrong,
and because it names features that change the outputs and that no replica applies. The base model's name or
path in it is never looked at: the hash decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from services.registry.core.defects import defect
from services.registry.core.tensor_names import last_parts
from shared.messages.adapters import AdapterRegistered, Defect

CONFIG_NAME = "adapter_config.json"
LARGEST_CONFIG_BYTES = 1 << 20

_UNSERVED = {
    "use_dora": ("dora", "asks for DoRA"),
    "lora_bias": ("bias", "asks for biases"),
    "modules_to_save": ("module_not_adaptable", "replaces whole modules"),
    "fan_in_fan_out": ("feature_not_served", "stores transposed layers"),
    "layer_replication": ("feature_not_served", "replicates layers"),
    "trainable_token_indices": ("module_not_adaptable", "trains token embeddings"),
    "target_parameters": ("feature_not_served", "adapts bare parameters"),
    "alora_invocation_tokens": ("feature_not_served", "is switched on by tokens"),
    "megatron_config": ("feature_not_served", "is sharded by Megatron"),
}
"""PEFT settings that must be absent, false or empty."""

_CHANGES_BASE = ("pissa", "olora", "corda")
"""Initialisations that alter the base weights, so that the file is right only on a base nobody serves."""


def check_config(text: bytes, announced: AdapterRegistered) -> Iterator[Defect]:
    """Every contradiction between adapter_config.json and the announcement."""
    config = _parsed(text)
    if not isinstance(config, dict):
        yield defect("config_invalid", f"{CONFIG_NAME} is not a JSON object of at most 1 MiB.", CONFIG_NAME)
        return
    yield from _check_kind(config)
    yield from _check_numbers(config, announced)
    yield from _check_target_modules(config, announced)


def _parsed(text: bytes) -> Any:
    if len(text) > LARGEST_CONFIG_BYTES:
        return None
    try:
        return json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def _check_kind(config: Mapping[str, Any]) -> Iterator[Defect]:
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        yield defect("not_lora", f"{CONFIG_NAME} describes {kind!r}, not LORA.", "peft_type")
    for name, (code, what) in _UNSERVED.items():
        if config.get(name):
            message = f"{CONFIG_NAME} {what} ({name}), which is not served."
            yield defect(code, message, name)
    if (bias := config.get("bias", "none")) != "none":
        yield defect("bias", f"{CONFIG_NAME} has bias {bias!r}; adapters with biases are not served.", "bias")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        message = f"{CONFIG_NAME} was initialised by {start!r}, which changes the base; convert it to plain LoRA."
        yield defect("feature_not_served", message, "init_lora_weights")


def _check_numbers(config: Mapping[str, Any], announced: AdapterRegistered) -> Iterator[Defect]:
    pairs: tuple[tuple[str, str, Any, Any], ...] = (
        ("r", "rank", announced.rank, announced.rank),
        ("lora_alpha", "alpha", announced.alpha, announced.alpha),
        ("use_rslora", "use_rslora", announced.use_rslora, False),
        ("rank_pattern", "rank_pattern", dict(announced.rank_pattern), {}),
        ("alpha_pattern", "alpha_pattern", dict(announced.alpha_pattern), {}),
    )
    for name, field, said, absent in pairs:
        found = config.get(name)
        found = absent if found is None else found
        if found != said:
            message = f"{CONFIG_NAME} has {name} {found!r} but the announcement has {field} {said!r}."
            yield defect("config_disagrees", message, field)


def _check_target_modules(config: Mapping[str, Any], announced: AdapterRegistered) -> Iterator[Defect]:
    """A text there is an expression over names, which the tensors in the file answer better."""
    found = config.get("target_modules")
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        return
    if last_parts(found) != last_parts(announced.target_modules):
        message = (
            f"{CONFIG_NAME} targets {', '.join(sorted(found))} but the announcement targets "
            f"{', '.join(sorted(announced.target_modules))}."
        )
        yield defect("config_disagrees", message, "target_modules")
