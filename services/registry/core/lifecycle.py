"""The states of an adapter and the moves between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from services.registry.core.deployment.aliases import Denied

_MOVES: Mapping[str | None, frozenset[str]] = {
    None: frozenset({"registered"}),
    "registered": frozenset({"verified", "rejected", "failed"}),
    "rejected": frozenset({"registered"}),
    "verified": frozenset({"evaluating", "failed"}),
    "evaluating": frozenset({"active", "failed"}),
    "active": frozenset({"retired", "failed"}),
    "failed": frozenset(),
    "retired": frozenset(),
}
"""None is "unknown here". A rejected announcement left nothing behind, so a corrected one may follow."""

EVALUATING = "evaluating"
UNFINISHED = ("verified", EVALUATING)
"""States in which an evaluation must still happen: what a restart resumes."""

REGISTERED = "registered"
UNDER_WAY = (REGISTERED, *UNFINISHED)
"""States that have a deadline."""

_OVERDUE: Mapping[str, str] = {
    "registered": "it could not be read and checked",
    "verified": "no replica evaluated it",
    "evaluating": "its evaluation did not end",
}

HELD = ("verified", "evaluating", "active")
"""States in which replicas may hold the adapter."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of an adapter's history. `deadline_s` is the wall-clock time by which the next must come; `actor`
    names the person who wanted it, empty where the fleet decided."""

    state: str
    reason: str
    at_s: float
    deadline_s: float | None = None
    actor: str = ""


class IllegalMove(Exception):
    """The adapter is not where this move begins: somebody else moved it. Nothing was changed."""


def move(current: str | None, target: str, reason: str, now_s: float) -> Move:
    """Raises IllegalMove."""
    if target not in _MOVES[current]:
        raise IllegalMove(f"an adapter that is {current or 'unknown'} cannot become {target}")
    return Move(state=target, reason=reason, at_s=now_s)


def begin(current: str | None, now_s: float, verification_deadline_s: float) -> Move:
    """An announcement is known from here on. `verification_deadline_s` is how long reading and checking may take."""
    step = move(current, "registered", "announced", now_s)
    return msgspec.structs.replace(step, deadline_s=now_s + verification_deadline_s)


def verify(reason: str, now_s: float, evaluation_deadline_s: float) -> Move:
    """`evaluation_deadline_s` is how long the evaluation may take, counted from now."""
    step = move("registered", "verified", reason, now_s)
    return msgspec.structs.replace(step, deadline_s=now_s + evaluation_deadline_s)


def refuses_pin(adapter_id: str, status: str) -> Denied | None:
    """Why an adapter in this state cannot be pinned: no replica will ever hold it."""
    if status in HELD or status == REGISTERED:
        return None
    message = f"Adapter {adapter_id} is {status}; no replica holds it."
    return Denied(kind="conflict", code="adapter_not_active", message=message)


def expire(status: str, trouble: str, now_s: float) -> Move:
    """The deadline of the adapter has passed; the sentence carries what stood in the way last."""
    return move(status, "failed", f"{_OVERDUE[status]} before its deadline: {trouble}", now_s)


def lose(reason: str, now_s: float) -> Move:
    """An active adapter whose stored bytes are no more what they were."""
    return move("active", "failed", reason, now_s)


def overrule(reason: str, actor: str, now_s: float) -> Move:
    """A person's word against an evaluation: the only way out of "failed"."""
    return Move(state="active", reason=f"overridden: {reason}", at_s=now_s, actor=actor)


def decide_retire(adapter_id: str, status: str, aliases: Sequence[str], now_s: float) -> Move | Denied:
    """Refused while an alias means it: customers would get a 404 in the middle of their work."""
    if status == "retired":
        message = f"Adapter {adapter_id} is already retired."
        return Denied(kind="conflict", code="already_retired", message=message)
    if status != "active":
        message = f"Adapter {adapter_id} is {status}; only an active one can be retired."
        return Denied(kind="conflict", code="adapter_not_active", message=message)
    if aliases:
        named = ", ".join(sorted(aliases))
        message = f"Adapter {adapter_id} is what {named} means, or goes back to by a guard; move the alias first."
        return Denied(kind="conflict", code="adapter_in_use", message=message)
    return move(status, "retired", "an operator retired it", now_s)
