"""The adapter_config.json beside a weights file: nothing in it may contradict the announcement.

The announcement decides; the file is read only because a disagreement means that one of the two is wrong,
and because it names features that change the outputs and that no replica applies. The base model's name or
path in it is never looked at: the hash decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from services.registry.core.defects import Code, defect, quoted
from services.registry.core.files.terms import Terms, expression_fault, places_of
from shared.expressions import ExpressionNotServed, NoExpression
from shared.lora_names import last_parts
from shared.lora_terms import Targets
from shared.messages.adapters import AdapterRegistered, Defect
from shared.messages.desired import BaseModelRecord

CONFIG_NAME = "adapter_config.json"
LARGEST_CONFIG_BYTES = 1 << 20

_UNSERVED: Mapping[str, tuple[Code, str]] = {
    "use_dora": ("dora", "asks for DoRA"),
    "lora_bias": ("bias", "asks for biases"),
    "modules_to_save": ("module_not_adaptable", "replaces whole modules"),
    "fan_in_fan_out": ("feature_not_served", "stores transposed layers"),
    "layer_replication": ("feature_not_served", "replicates layers"),
    "trainable_token_indices": ("module_not_adaptable", "trains token embeddings"),
    "target_parameters": ("feature_not_served", "adapts bare parameters"),
    "alora_invocation_tokens": ("feature_not_served", "is switched on by tokens"),
    "megatron_config": ("feature_not_served", "is sharded by Megatron"),
    "use_qalora": ("feature_not_served", "pools its inputs (QALoRA)"),
    "use_bdlora": ("feature_not_served", "has block-diagonal halves (BD-LoRA)"),
    "arrow_config": ("feature_not_served", "routes between adapters (Arrow)"),
    "kasa_config": ("feature_not_served", "changes the base (KaSA)"),
    "monteclora_config": ("feature_not_served", "draws its weights (MonteCLoRA)"),
}
"""PEFT settings that must be absent, false or empty."""

_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initialisations that alter the base weights, so that the file is right only on a base nobody serves."""


class Beside(msgspec.Struct, frozen=True):
    """The file beside the weights; `content` is None if it is no JSON object."""

    content: Mapping[str, Any] | None

    @property
    def excluded(self) -> Targets | None:
        """What PEFT left out of what the targets mean, if that can be read."""
        said = (self.content or {}).get("exclude_modules")
        return _targets(said) if said else None


def read_config(text: bytes) -> Beside:
    """Never raises."""
    if len(text) > LARGEST_CONFIG_BYTES:
        return Beside(None)
    try:
        content = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return Beside(None)
    return Beside(content if isinstance(content, dict) else None)


def check_config(
    beside: Beside, announced: AdapterRegistered, terms: Terms, base: BaseModelRecord | None
) -> Iterator[Defect]:
    """Every contradiction between adapter_config.json and the announcement."""
    config = beside.content
    if config is None:
        message = f"{CONFIG_NAME} is not a JSON object of at most 1 MiB."
        yield defect("config_invalid", message, CONFIG_NAME, found="other bytes", allowed="a JSON object")
        return
    yield from _check_kind(config)
    yield from _check_numbers(config, announced)
    yield from _check_target_modules(beside, announced, terms, base)
    if isinstance(announced.target_modules, str):
        yield from _check_exclusion(config.get("exclude_modules"))


def _check_kind(config: Mapping[str, Any]) -> Iterator[Defect]:
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        message = f"{CONFIG_NAME} describes {quoted(kind)}, not LORA."
        yield defect("not_lora", message, "peft_type", found=kind, allowed="LORA")
    for name, (code, what) in _UNSERVED.items():
        if found := config.get(name):
            message = f"{CONFIG_NAME} {what} ({name}), which is not served."
            yield defect(code, message, name, found=found, allowed="absent, false or empty")
    if (bias := config.get("bias", "none")) != "none":
        message = f"{CONFIG_NAME} has bias {quoted(bias)}; adapters with biases are not served."
        yield defect("bias", message, "bias", found=bias, allowed="none")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        message = f"{CONFIG_NAME} was initialised by {quoted(start)}, which changes the base; convert it to plain LoRA."
        yield defect("feature_not_served", message, "init_lora_weights", found=start, allowed="plain LoRA")


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
            message = f"{CONFIG_NAME} has {name} {quoted(found)} but the announcement has {field} {quoted(said)}."
            yield defect("config_disagrees", message, field, found=found, allowed=said)


def _check_target_modules(
    beside: Beside, announced: AdapterRegistered, terms: Terms, base: BaseModelRecord | None
) -> Iterator[Defect]:
    """Both mean the same modules, however they write them; of two lists the layers do not count."""
    found, said = (beside.content or {}).get("target_modules"), announced.target_modules
    there = _targets(found)
    if there is None or terms.targets is None or found == said:
        return
    if isinstance(found, list) and not isinstance(said, str):
        same = last_parts(found) == last_parts(said)
    else:
        same = _meant(there, beside.excluded, base) == _meant(terms.targets, beside.excluded, base)
    if not same:
        message = f"{CONFIG_NAME} targets {_shown(found)} but the announcement targets {_shown(said)}."
        yield defect("config_disagrees", message, "target_modules", found=_shown(found), allowed=_shown(said))


def _check_exclusion(said: Any) -> Iterator[Defect]:
    """What an expression leaves out must be known; of a list the tensors tell."""
    if isinstance(said, str):
        try:
            Targets(said)
        except (NoExpression, ExpressionNotServed) as fault:
            yield expression_fault(fault, "exclude_modules", said)


def _targets(said: Any) -> Targets | None:
    """None for what is neither a list of names nor an expression that can be read."""
    if not isinstance(said, str) and not (isinstance(said, list) and all(isinstance(name, str) for name in said)):
        return None
    try:
        return Targets(said if isinstance(said, str) else tuple(said))
    except (NoExpression, ExpressionNotServed):
        return None


def _meant(targets: Targets, excluded: Targets | None, base: BaseModelRecord | None) -> set[str]:
    paths = {place.path for place in (() if base is None else places_of(base)) if targets.mean(place.path)}
    return {path for path in paths if excluded is None or not excluded.mean(path)}


def _shown(said: Any) -> str:
    return quoted(said) if isinstance(said, str) else ", ".join(sorted(said))
