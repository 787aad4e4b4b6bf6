"""Which adapter an alias may mean, and how it moves forth and back."""

from __future__ import annotations

import msgspec

from services.registry.core.defects import quoted
from services.registry.core.deployment.aliases import AliasChange, AliasState, Candidate, Change, Denied
from services.registry.core.deployment.guards import guard_fault
from shared.messages.identity import ALIAS_GRAMMAR, is_alias


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


def decide_set(current: AliasState | None, candidate: Candidate, alias: str, asked: Change) -> AliasChange | Denied:
    """Deploy `candidate` under an alias whose name is right.

    A split is not ended in passing: who deploys may not know of it. Setting what already is keeps the way back, and
    puts a guard on if one is given.
    """
    if (fault := _set_fault(current, candidate, alias, asked)) is not None:
        return fault
    now_means = current.adapter_id if current else None
    if current is not None and now_means == candidate.adapter_id and current.split_adapter_id is None:
        state = msgspec.structs.replace(current, guard=asked.guard or current.guard)
        reason = f"{alias} already means {candidate.adapter_id}"
        return AliasChange(state=state, kind="set", reason=reason, changed=asked.guard is not None)
    previous = current.previous_adapter_id if current and now_means == candidate.adapter_id else now_means
    state = AliasState(
        alias=alias, tenant_id=candidate.tenant_id, adapter_id=candidate.adapter_id, previous_adapter_id=previous,
        revision=current.revision if current else 0, guard=asked.guard,
    )  # fmt: skip
    story = f"moves from {now_means} to" if now_means else "is new and means"
    return AliasChange(state=state, kind="set", reason=f"{alias} {story} {candidate.adapter_id}")


def nothing_before(alias: str) -> Denied:
    message = f"Alias {alias!r} has never meant another adapter."
    return Denied(kind="conflict", code="nothing_to_roll_back", message=message)


def decide_rollback(
    current: AliasState, previous: Candidate, asked: Change, kind: str = "rollback"
) -> AliasChange | Denied:
    """Back to the adapter before; a second rollback returns to where the first began. No guard is kept."""
    if (fault := expectation_fault(current, current.alias, asked)) is not None:
        return fault
    if previous.status != "active":
        return not_active(previous, None)
    state = msgspec.structs.replace(
        current, adapter_id=previous.adapter_id, previous_adapter_id=current.adapter_id, guard=None
    )
    reason = f"{current.alias} rolls back from {current.adapter_id} to {previous.adapter_id}"
    return AliasChange(state=state, kind=kind, reason=reason)


def decide_deploy(
    current: AliasState | None, current_registered_at_s: float, candidate: Candidate, alias: str, asked: Change
) -> AliasChange | Denied:
    """Deploy an adapter that has become active and was announced with this alias.

    Evaluations do not end in the order they began in: a version that was announced before the one the
    alias means now is not deployed over it.
    """
    if current is not None and current_registered_at_s > candidate.registered_at_s:
        message = f"Alias {alias!r} already means {current.adapter_id}, which was announced later."
        return Denied(kind="conflict", code="alias_is_newer", message=message)
    return decide_set(current, candidate, alias, asked)


def expectation_fault(current: AliasState | None, alias: str, asked: Change) -> Denied | None:
    """Why the alias is not as whoever asks thinks that it is: somebody else was faster."""
    now_means = current.adapter_id if current else None
    if asked.expected_adapter_id is not None and now_means != asked.expected_adapter_id:
        message = f"Alias {alias!r} means {now_means or 'nothing'} now, not {asked.expected_adapter_id}."
        return Denied(kind="conflict", code="alias_changed", message=message, field="expected_adapter_id")
    revision = current.revision if current else 0
    if asked.if_match is not None and revision != asked.if_match:
        found = f"is at revision {revision} and means {now_means} now" if current else "does not exist"
        wanted = f"not at revision {asked.if_match}" if asked.if_match else "though it was to be a new one"
        message = f"Alias {alias!r} {found}, {wanted}."
        return Denied(kind="conflict", code="alias_changed", message=message, field="if-match")
    return None


def split_fault(current: AliasState | None, asked: Change) -> Denied | None:
    """Why nobody but who knows of the split may take it away along with what the alias means."""
    if current is None or current.split_adapter_id is None or asked.force:
        return None
    message = (
        f"{current.split_percent:g} % of the sessions of {current.alias!r} mean {current.split_adapter_id}: promote or "
        "end the split first, or force it."
    )
    return Denied(kind="conflict", code="alias_split", message=message)


def not_active(candidate: Candidate, field: str | None) -> Denied:
    message = f"Adapter {candidate.adapter_id} is {candidate.status}; an alias can only mean an active one."
    return Denied(kind="conflict", code="adapter_not_active", message=message, field=field)


def bad_guard(asked: Change, way_back: str | None) -> Denied | None:
    """A guard that could never act is refused, rather than relied upon."""
    if asked.guard is None:
        return None
    fault = guard_fault(asked.guard)
    if fault is None and way_back is None:
        fault = "A guard needs a version to go back to, and this alias has none."
    return None if fault is None else Denied(kind="invalid", code="guard_invalid", message=fault, field="guard")


def _set_fault(current: AliasState | None, candidate: Candidate, alias: str, asked: Change) -> Denied | None:
    if (fault := name_fault(alias, candidate.tenant_id, frozenset())) is not None:
        return fault
    if (fault := expectation_fault(current, alias, asked)) is not None:
        return fault
    if candidate.status != "active":
        return not_active(candidate, "adapter_id")
    if (fault := split_fault(current, asked)) is not None:
        return fault
    stays = current is not None and current.adapter_id == candidate.adapter_id
    way_back = None if current is None else current.previous_adapter_id if stays else current.adapter_id
    return bad_guard(asked, way_back)
