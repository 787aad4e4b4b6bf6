"""Which adapter an alias may mean, and how it moves forth and back."""

from __future__ import annotations

import msgspec

from services.registry.core.defects import quoted
from shared.messages.identity import ALIAS_GRAMMAR, is_alias


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """Why not. `kind` is "invalid" (the request is wrong), "missing" or "conflict" (with the present state)."""

    kind: str
    code: str
    message: str
    field: str | None = None


class AliasState(msgspec.Struct, frozen=True, kw_only=True):
    """What an alias means now, and what a rollback would make it mean."""

    alias: str
    tenant_id: str
    adapter_id: str
    previous_adapter_id: str | None = None
    updated_at_s: float = 0.0


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter that the alias is to mean."""

    adapter_id: str
    tenant_id: str
    status: str
    registered_at_s: float = 0.0


class AliasChange(msgspec.Struct, frozen=True, kw_only=True):
    """The alias as it is to be. `changed` is false if it already was."""

    state: AliasState
    changed: bool
    reason: str


def name_fault(alias: str, tenant_id: str | None, base_names: frozenset[str]) -> Denied | None:
    """What is wrong with an alias by its name alone; `tenant_id` is whose it must be, if that is known."""
    if alias in base_names:
        message = f"Alias {alias!r} is the name of a base model."
        return Denied(kind="invalid", code="alias_is_base_model", message=message, field="alias")
    if not is_alias(alias):
        message = f"Alias {quoted(alias)} must be {ALIAS_GRAMMAR}."
        return Denied(kind="invalid", code="alias_invalid", message=message, field="alias")
    if tenant_id is not None and tenant_of(alias) != tenant_id:
        message = f"Alias {alias!r} belongs to tenant {tenant_of(alias)!r}, not to {tenant_id!r}."
        return Denied(kind="invalid", code="alias_foreign", message=message, field="alias")
    return None


def tenant_of(alias: str) -> str:
    return alias.partition("/")[0]


def decide_set(
    current: AliasState | None, candidate: Candidate, alias: str, *, expected_adapter_id: str | None = None
) -> AliasChange | Denied:
    """Deploy `candidate` under an alias whose name is right. With `expected_adapter_id` only if the alias
    means that adapter now, so that two operators do not undo each other unknowingly."""
    if (fault := name_fault(alias, candidate.tenant_id, frozenset())) is not None:
        return fault
    now_means = current.adapter_id if current else None
    if expected_adapter_id is not None and now_means != expected_adapter_id:
        message = f"Alias {alias!r} means {now_means or 'nothing'} now, not {expected_adapter_id}."
        return Denied(kind="conflict", code="alias_changed", message=message, field="expected_adapter_id")
    if candidate.status != "active":
        return _not_active(candidate, "adapter_id")
    if current is not None and now_means == candidate.adapter_id:
        return AliasChange(state=current, changed=False, reason=f"{alias} already means {candidate.adapter_id}")
    state = AliasState(
        alias=alias, tenant_id=candidate.tenant_id, adapter_id=candidate.adapter_id, previous_adapter_id=now_means
    )
    return AliasChange(state=state, changed=True, reason=f"{alias} moves from {now_means} to {candidate.adapter_id}")


def nothing_before(alias: str) -> Denied:
    message = f"Alias {alias!r} has never meant another adapter."
    return Denied(kind="conflict", code="nothing_to_roll_back", message=message)


def decide_rollback(current: AliasState, previous: Candidate) -> AliasChange | Denied:
    """Back to the adapter before; a second rollback returns to where the first began."""
    if previous.status != "active":
        return _not_active(previous, None)
    state = msgspec.structs.replace(current, adapter_id=previous.adapter_id, previous_adapter_id=current.adapter_id)
    reason = f"{current.alias} rolls back from {current.adapter_id} to {previous.adapter_id}"
    return AliasChange(state=state, changed=True, reason=reason)


def decide_deploy(
    current: AliasState | None, current_registered_at_s: float, candidate: Candidate, alias: str
) -> AliasChange | Denied:
    """Deploy an adapter that has just become active and was announced with this alias.

    Evaluations do not end in the order they began in: a version that was announced before the one the
    alias means now is not deployed over it.
    """
    if current is not None and current_registered_at_s > candidate.registered_at_s:
        message = f"Alias {alias!r} already means {current.adapter_id}, which was announced later."
        return Denied(kind="conflict", code="alias_is_newer", message=message)
    return decide_set(current, candidate, alias)


def stamped(state: AliasState, now_s: float) -> AliasState:
    return msgspec.structs.replace(state, updated_at_s=now_s)


def _not_active(candidate: Candidate, field: str | None) -> Denied:
    message = f"Adapter {candidate.adapter_id} is {candidate.status}; an alias can only mean an active one."
    return Denied(kind="conflict", code="adapter_not_active", message=message, field=field)
