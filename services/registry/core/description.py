"""What is wrong with an announcement by itself, before any file is opened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from services.registry.core.aliases import name_fault
from services.registry.core.defects import defect, quoted
from services.registry.core.tensor_names import is_plain_name, last_parts
from shared.messages.adapters import AdapterRegistered, Defect
from shared.messages.desired import BaseModelRecord
from shared.messages.identity import ADAPTER_ID_GRAMMAR, TENANT_ID_GRAMMAR, is_adapter_id, is_digest, is_tenant_id


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry knows that an announcement must agree with. `base` is None for an unknown hash."""

    tenant_known: bool
    base: BaseModelRecord | None
    base_names: frozenset[str]


def largest_rank(announced: AdapterRegistered) -> int:
    """The rank that decides the pool: the largest that any module has."""
    return max(announced.rank, *announced.rank_pattern.values()) if announced.rank_pattern else announced.rank


def check_description(announced: AdapterRegistered, around: Surroundings) -> tuple[Defect, ...]:
    """Every defect of the announcement's own fields."""
    return (
        *check_identity(announced, around.tenant_known),
        *_check_version(announced.version),
        *_check_base(announced, around.base),
        *_check_ranks(announced, around.base),
        *_check_alphas(announced),
        *_check_targets(announced, around.base),
        *_check_patterns(announced),
        *_check_checksum(announced.checksum),
        *_check_alias(announced, around.base_names),
    )


def check_identity(announced: AdapterRegistered, tenant_known: bool) -> tuple[Defect, ...]:
    """Defects without which there is nobody to keep a record for."""
    return (*_check_adapter_id(announced.adapter_id), *_check_tenant(announced.tenant_id, tenant_known))


def _check_adapter_id(adapter_id: str) -> Iterator[Defect]:
    if not is_adapter_id(adapter_id):
        message = f"adapter_id {quoted(adapter_id)} must be {ADAPTER_ID_GRAMMAR}."
        yield defect("adapter_id_invalid", message, "adapter_id")


def _check_tenant(tenant_id: str, known: bool) -> Iterator[Defect]:
    if not is_tenant_id(tenant_id):
        yield defect("tenant_invalid", f"tenant_id {quoted(tenant_id)} must be {TENANT_ID_GRAMMAR}.", "tenant_id")
    elif not known:
        yield defect("tenant_unknown", f"There is no tenant {tenant_id!r}.", "tenant_id")


def _check_version(version: str) -> Iterator[Defect]:
    if not 0 < len(version) <= 64 or not version.isprintable():
        yield defect("version_invalid", "version must be 1 to 64 printable characters.", "version")


def _check_base(announced: AdapterRegistered, base: BaseModelRecord | None) -> Iterator[Defect]:
    wanted, field = announced.base_model_hash, "base_model_hash"
    if not is_digest(wanted):
        yield defect("base_model_invalid", "base_model_hash must be 64 characters of 0-9 a-f.", field)
    elif base is None:
        yield defect("base_model_unknown", f"No base model with the hash {wanted} is served here.", field)


def _check_ranks(announced: AdapterRegistered, base: BaseModelRecord | None) -> Iterator[Defect]:
    for field, rank in _with_patterns("rank", announced.rank, announced.rank_pattern):
        if rank < 1:
            yield defect("rank_invalid", f"{field} is {rank}; a rank is at least 1.", field)
        elif base is not None and rank > (limit := max(base.rank_classes)):
            message = f"{field} is {rank}; the largest rank served on {base.name} is {limit}."
            yield defect("rank_too_high", message, field)


def _check_alphas(announced: AdapterRegistered) -> Iterator[Defect]:
    for field, alpha in _with_patterns("alpha", announced.alpha, announced.alpha_pattern):
        if not (math.isfinite(alpha) and alpha > 0):
            yield defect("alpha_invalid", f"{field} is {alpha}; it must be a finite number above 0.", field)


def _with_patterns(field: str, value: float, pattern: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    yield field, value
    for name, own in pattern.items():
        yield f"{field}_pattern[{quoted(name)}]", own


def _check_targets(announced: AdapterRegistered, base: BaseModelRecord | None) -> Iterator[Defect]:
    field, targets = "target_modules", announced.target_modules
    if not targets:
        yield defect("targets_empty", "target_modules names no module.", field)
    if len(set(targets)) < len(targets):
        yield defect("targets_repeated", "target_modules names a module twice.", field)
    for target in targets:
        if not is_plain_name(target):
            message = f"Target {quoted(target)} is not a module name; expressions are not taken."
            yield defect("target_invalid", message, field)
    if base is not None:
        yield from _check_targets_exist(targets, base)


def _check_targets_exist(targets: Iterable[str], base: BaseModelRecord) -> Iterator[Defect]:
    plain = last_parts(target for target in targets if is_plain_name(target))
    for module in sorted(plain - set(base.modules)):
        message = f"Module {module!r} does not exist in {base.name}, which adapts {', '.join(sorted(base.modules))}."
        yield defect("module_unknown", message, "target_modules")


def _check_patterns(announced: AdapterRegistered) -> Iterator[Defect]:
    for field, pattern in (("rank_pattern", announced.rank_pattern), ("alpha_pattern", announced.alpha_pattern)):
        for name in pattern:
            if not is_plain_name(name):
                message = f"Pattern {quoted(name)} is not a module name; expressions are not taken."
                yield defect("pattern_invalid", message, field)


def _check_checksum(checksum: str) -> Iterator[Defect]:
    if not is_digest(checksum):
        message = "checksum must be the SHA-256 of the weights file as 64 characters of 0-9 a-f."
        yield defect("checksum_invalid", message, "checksum")


def _check_alias(announced: AdapterRegistered, base_names: frozenset[str]) -> Iterator[Defect]:
    if announced.alias is None:
        return
    fault = name_fault(announced.alias, announced.tenant_id, base_names)
    if fault is not None:
        yield defect(fault.code, fault.message, "alias")
