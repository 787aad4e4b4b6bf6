"""The states of an adapter and the moves between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from services.registry.core.aliases import Denied

_MOVES: Mapping[str | None, frozenset[str]] = {
    None: frozenset({"registered"}),
    "registered": frozenset({"verified", "rejected"}),
    "rejected": frozenset({"registered"}),
    "verified": frozenset({"evaluating"}),
    "evaluating": frozenset({"active", "failed"}),
    "active": frozenset({"retired"}),
    "failed": frozenset(),
    "retired": frozenset(),
}
"""None is "unknown here". A rejected announcement left nothing behind, so a corrected one may follow."""

UNFINISHED = ("verified", "evaluating")
"""States that something must still happen to: what a restart resumes."""

HELD = ("verified", "evaluating", "active")
"""States in which replicas may hold the adapter."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of an adapter's history. `deadline_s` is the wall-clock time by which the next must come."""

    state: str
    reason: str
    at_s: float
    deadline_s: float | None = None


class IllegalMove(Exception):
    """The adapter is not where this move begins: somebody else moved it. Nothing was changed."""


def move(current: str | None, target: str, reason: str, now_s: float) -> Move:
    """Raises IllegalMove."""
    if target not in _MOVES[current]:
        raise IllegalMove(f"an adapter that is {current or 'unknown'} cannot become {target}")
    return Move(state=target, reason=reason, at_s=now_s)


def accept(current: str | None, reason: str, now_s: float, evaluation_deadline_s: float) -> tuple[Move, Move]:
    """Registered and verified in one step: nothing between the two survives a crash, so nothing is resumed.

    `evaluation_deadline_s` is how long the evaluation may take, counted from now.
    """
    verified = move("registered", "verified", reason, now_s)
    deadline_s = now_s + evaluation_deadline_s
    return move(current, "registered", "announced", now_s), msgspec.structs.replace(verified, deadline_s=deadline_s)


def reject(current: str | None, reason: str, now_s: float) -> tuple[Move, Move]:
    return move(current, "registered", "announced", now_s), move("registered", "rejected", reason, now_s)


def decide_retire(adapter_id: str, status: str, aliases: Sequence[str], now_s: float) -> Move | Denied:
    """Refused while an alias means it: customers would get a 404 in the middle of their work."""
    if status == "retired":
        message = f"Adapter {adapter_id} is already retired."
        return Denied(kind="conflict", code="already_retired", message=message)
    if status != "active":
        message = f"Adapter {adapter_id} is {status}; only an active one can be retired."
        return Denied(kind="conflict", code="adapter_not_active", message=message)
    if aliases:
        message = f"Adapter {adapter_id} is what {', '.join(sorted(aliases))} means; move the alias first."
        return Denied(kind="conflict", code="adapter_in_use", message=message)
    return move(status, "retired", "an operator retired it", now_s)
