"""What is wrong with an announcement by itself, before any file is opened."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from services.registry.core.defects import Code, defect, quoted
from services.registry.core.deployment.alias_moves import name_fault
from services.registry.core.files.terms import entry_of
from shared.lora_names import is_plain_name, last_parts
from shared.messages.adapters import EVALUATORS, AdapterRegistered, Defect
from shared.messages.desired import BaseModelRecord
from shared.messages.identity import (
    ADAPTER_ID_GRAMMAR,
    ALIAS_GRAMMAR,
    TENANT_ID_GRAMMAR,
    is_adapter_id,
    is_digest,
    is_tenant_id,
)

_HEX = "64 characters of 0-9 a-f"
_OF_ALIAS: Mapping[str, tuple[Code, str]] = {
    "alias_is_base_model": ("alias_is_base_model", "no name of a base model"),
    "alias_invalid": ("alias_invalid", ALIAS_GRAMMAR),
    "alias_foreign": ("alias_foreign", "an alias of the adapter's tenant"),
}
"""The faults of a name, and what it may be instead."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry knows that an announcement must agree with. `base` is None for an unknown hash,
    `predecessor_tenant_id` for a predecessor that there is not."""

    tenant_known: bool
    base: BaseModelRecord | None
    base_names: frozenset[str]
    predecessor_tenant_id: str | None = None


def largest_rank(announced: AdapterRegistered) -> int:
    """The rank that decides the pool: the largest that any module has."""
    return max(announced.rank, *announced.rank_pattern.values()) if announced.rank_pattern else announced.rank


def check_description(announced: AdapterRegistered, around: Surroundings) -> tuple[Defect, ...]:
    """Every defect of the announcement's own fields but for the texts of its targets and patterns (`core/terms.py`)."""
    return (
        *check_identity(announced, around.tenant_known),
        *_check_version(announced.version),
        *_check_base(announced, around.base),
        *_check_ranks(announced, around.base),
        *_check_alphas(announced),
        *_check_targets(announced, around.base),
        *_check_checksum(announced.checksum),
        *_check_alias(announced, around.base_names),
        *_check_origin(announced),
        *_check_predecessor(announced, around.predecessor_tenant_id),
    )


def check_identity(announced: AdapterRegistered, tenant_known: bool) -> tuple[Defect, ...]:
    """Defects without which there is nobody to keep a record for."""
    return (*_check_adapter_id(announced.adapter_id), *_check_tenant(announced.tenant_id, tenant_known))


def _check_adapter_id(adapter_id: str) -> Iterator[Defect]:
    if not is_adapter_id(adapter_id):
        message = f"adapter_id {quoted(adapter_id)} must be {ADAPTER_ID_GRAMMAR}."
        yield defect("adapter_id_invalid", message, "adapter_id", found=adapter_id, allowed=ADAPTER_ID_GRAMMAR)


def _check_tenant(tenant_id: str, known: bool) -> Iterator[Defect]:
    field = "tenant_id"
    if not is_tenant_id(tenant_id):
        message = f"tenant_id {quoted(tenant_id)} must be {TENANT_ID_GRAMMAR}."
        yield defect("tenant_invalid", message, field, found=tenant_id, allowed=TENANT_ID_GRAMMAR)
    elif not known:
        message = f"There is no tenant {tenant_id!r}."
        yield defect("tenant_unknown", message, field, found=tenant_id, allowed="a tenant that was created")


def _check_version(version: str) -> Iterator[Defect]:
    if not 0 < len(version) <= 64 or not version.isprintable():
        allowed = "1 to 64 printable characters"
        yield defect("version_invalid", f"version must be {allowed}.", "version", found=version, allowed=allowed)


def _check_base(announced: AdapterRegistered, base: BaseModelRecord | None) -> Iterator[Defect]:
    wanted, field = announced.base_model_hash, "base_model_hash"
    if not is_digest(wanted):
        message = f"base_model_hash must be {_HEX}."
        yield defect("base_model_invalid", message, field, found=wanted, allowed=_HEX)
    elif base is None:
        message = f"No base model with the hash {wanted} is served here."
        yield defect("base_model_unknown", message, field, found=wanted, allowed="the hash of a base served here")


def _check_ranks(announced: AdapterRegistered, base: BaseModelRecord | None) -> Iterator[Defect]:
    for field, rank in _with_patterns("rank", announced.rank, announced.rank_pattern):
        if rank < 1:
            message = f"{field} is {quoted(rank)}; a rank is at least 1."
            yield defect("rank_invalid", message, field, found=rank, allowed="at least 1")
        elif base is not None and rank > (limit := max(base.rank_classes)):
            message = f"{field} is {quoted(rank)}; the largest rank served on {base.name} is {limit}."
            yield defect("rank_too_high", message, field, found=rank, allowed=f"1 to {limit}")


def _check_alphas(announced: AdapterRegistered) -> Iterator[Defect]:
    allowed = "a finite number above 0"
    for field, alpha in _with_patterns("alpha", announced.alpha, announced.alpha_pattern):
        if not (math.isfinite(alpha) and alpha > 0):
            message = f"{field} is {alpha}; it must be {allowed}."
            yield defect("alpha_invalid", message, field, found=alpha, allowed=allowed)


def _with_patterns(field: str, value: float, pattern: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    yield field, value
    for name, own in pattern.items():
        yield entry_of(f"{field}_pattern", name), own


def _check_targets(announced: AdapterRegistered, base: BaseModelRecord | None) -> Iterator[Defect]:
    field, targets = "target_modules", announced.target_modules
    if not targets:
        yield defect("targets_empty", "target_modules names no module.", field, found="nothing", allowed="a module")
    if isinstance(targets, str):
        return
    for name in sorted(name for name, times in Counter(targets).items() if times > 1):
        message = f"target_modules names {quoted(name)} more than once."
        yield defect("targets_repeated", message, field, found=name, allowed="every module once")
    if base is not None:
        yield from _check_targets_exist(targets, base)


def _check_targets_exist(targets: Iterable[str], base: BaseModelRecord) -> Iterator[Defect]:
    plain = last_parts(target for target in targets if is_plain_name(target))
    served = ", ".join(sorted(base.modules))
    for module in sorted(plain - set(base.modules)):
        message = f"Module {quoted(module)} does not exist in {base.name}, which adapts {served}."
        yield defect("module_unknown", message, "target_modules", found=module, allowed=served)


def _check_checksum(checksum: str) -> Iterator[Defect]:
    if not is_digest(checksum):
        message = f"checksum must be the SHA-256 of the weights file as {_HEX}."
        yield defect("checksum_invalid", message, "checksum", found=checksum, allowed=_HEX)


def _check_alias(announced: AdapterRegistered, base_names: frozenset[str]) -> Iterator[Defect]:
    if announced.alias is None:
        return
    fault = name_fault(announced.alias, announced.tenant_id, base_names)
    if fault is not None:
        code, allowed = _OF_ALIAS.get(fault.code, _OF_ALIAS["alias_invalid"])
        yield defect(code, fault.message, "alias", found=announced.alias, allowed=allowed)


def _check_predecessor(announced: AdapterRegistered, tenant_id: str | None) -> Iterator[Defect]:
    """It may be on another base, and in any state. Another tenant's is told from none at all by nobody."""
    before, allowed = announced.predecessor_id, "an adapter of the same tenant"
    if before is None or not is_adapter_id(before):
        return
    if before == announced.adapter_id or tenant_id != announced.tenant_id:
        message = f"Tenant {quoted(announced.tenant_id)} has no adapter {quoted(before)} that this one could follow."
        yield defect("predecessor_unknown", message, "predecessor_id", found=before, allowed=allowed)


def _check_origin(announced: AdapterRegistered) -> Iterator[Defect]:
    """What is said of where the adapter comes from, and who judges it."""
    before, dataset, judge = announced.predecessor_id, announced.dataset_uri, announced.evaluated_by
    if before is not None and not is_adapter_id(before):
        message = f"predecessor_id {quoted(before)} must be {ADAPTER_ID_GRAMMAR}."
        yield defect("predecessor_invalid", message, "predecessor_id", found=before, allowed=ADAPTER_ID_GRAMMAR)
    if dataset is not None and not (0 < len(dataset) <= 1024 and dataset.isprintable()):
        allowed = "1 to 1,024 printable characters"
        yield defect(
            "dataset_uri_invalid", f"dataset_uri must be {allowed}.", "dataset_uri", found=dataset, allowed=allowed
        )
    if judge not in EVALUATORS:
        allowed = " or ".join(EVALUATORS)
        message = f"evaluated_by {quoted(judge)} must be {allowed}."
        yield defect("evaluated_by_invalid", message, "evaluated_by", found=judge, allowed=allowed)
