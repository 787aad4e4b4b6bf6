"""Two versions behind one alias: a canary release, and how it ends."""

from __future__ import annotations

import msgspec

from services.registry.core.deployment.alias_moves import bad_guard, expectation_fault, not_active, tenant_of
from services.registry.core.deployment.aliases import AliasChange, AliasState, Candidate, Change, Denied


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """`percent` of the sessions (0 to 100) are to mean `candidate`; `salt` is used if the split is a new one."""

    candidate: Candidate
    percent: float
    salt: str


def decide_split(current: AliasState, wish: Wish, asked: Change) -> AliasChange | Denied:
    """Begin a split, or change its percentage: the salt then stays, so that whoever was moved stays moved. So does
    the guard, unless another one is given."""
    if (fault := _split_fault(current, wish, asked)) is not None:
        return fault
    begins = current.split_adapter_id is None
    state = msgspec.structs.replace(
        current,
        split_adapter_id=wish.candidate.adapter_id,
        split_percent=wish.percent,
        split_salt=wish.salt if begins else current.split_salt,
        guard=asked.guard or (None if begins else current.guard),
    )
    reason = f"{wish.percent:g} % of the sessions of {current.alias} mean {wish.candidate.adapter_id}"
    return AliasChange(state=state, kind="split", reason=reason, changed=state != current)


def decide_promote(current: AliasState, candidate: Candidate, asked: Change) -> AliasChange | Denied:
    """The split's version gets every session; what the alias meant is what a rollback returns to. A guard goes on
    watching the version, from now on."""
    if (fault := expectation_fault(current, current.alias, asked)) is not None:
        return fault
    if current.split_adapter_id is None:
        return not_split(current)
    if candidate.status != "active":
        return not_active(candidate, None)
    if (fault := bad_guard(asked, current.adapter_id)) is not None:
        return fault
    ended = _ended(current)
    state = msgspec.structs.replace(
        ended,
        adapter_id=candidate.adapter_id,
        previous_adapter_id=current.adapter_id,
        guard=asked.guard or current.guard,
    )
    reason = f"{current.alias} moves from {current.adapter_id} to {candidate.adapter_id} altogether"
    return AliasChange(state=state, kind="promote", reason=reason)


def decide_unsplit(current: AliasState, asked: Change, kind: str = "unsplit") -> AliasChange | Denied:
    """Every session means again what the alias means."""
    if (fault := expectation_fault(current, current.alias, asked)) is not None:
        return fault
    if current.split_adapter_id is None:
        return not_split(current)
    reason = f"the sessions of {current.alias} leave {current.split_adapter_id} for {current.adapter_id}"
    return AliasChange(state=_ended(current), kind=kind, reason=reason)


def not_split(current: AliasState) -> Denied:
    message = f"Alias {current.alias!r} is not split: all sessions mean {current.adapter_id}."
    return Denied(kind="conflict", code="alias_not_split", message=message)


def _split_fault(current: AliasState, wish: Wish, asked: Change) -> Denied | None:
    candidate, other = wish.candidate, current.split_adapter_id
    if (fault := expectation_fault(current, current.alias, asked)) is not None:
        return fault
    if not 0 <= wish.percent <= 100:
        message = f"percent is {wish.percent}; it must be from 0 to 100."
        return Denied(kind="invalid", code="percent_invalid", message=message, field="percent")
    if candidate.tenant_id != tenant_of(current.alias):
        message = f"Adapter {candidate.adapter_id} is not one of tenant {tenant_of(current.alias)!r}."
        return Denied(kind="invalid", code="alias_foreign", message=message, field="adapter_id")
    if candidate.adapter_id == current.adapter_id:
        message = f"Alias {current.alias!r} means {candidate.adapter_id} already: a split needs another version."
        return Denied(kind="invalid", code="split_same", message=message, field="adapter_id")
    if candidate.status != "active":
        return not_active(candidate, "adapter_id")
    if other not in (None, candidate.adapter_id):
        message = f"Alias {current.alias!r} is split with {other}: promote it or end that split first."
        return Denied(kind="conflict", code="alias_split", message=message)
    return bad_guard(asked, current.adapter_id)


def _ended(current: AliasState) -> AliasState:
    return msgspec.structs.replace(current, split_adapter_id=None, split_percent=0.0, split_salt="", guard=None)
