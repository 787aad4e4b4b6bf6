"""How long a replica that has just come would leave requests to others: until what is planned for its slots is there.

It is for the busiest adapters only, and ends with a deadline whatever happens to them: after that a cold load is better
than a replica that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice

import msgspec

from services.replica_worker.core.assignment import Assignment
from shared.messages.identity import AdapterKey


class WarmPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`adapters`: how many of those planned for slots, the busiest first, are waited for."""

    adapters: int = 32
    deadline_s: float = 30.0
    plan_s: float = 5.0
    """How long to wait for a plan at all: placement makes one within a second of the first report."""


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """`to_come` adapters are waited for; `reason` says for what, or why it is over. It never begins again."""

    since_s: float
    over: bool = False
    to_come: int = 0
    reason: str = "nothing is planned for its slots yet"


class Slots(msgspec.Struct, frozen=True, kw_only=True):
    """The slots as they are. `free` hold nothing, or nothing yet; `failed` are adapters that could not be loaded."""

    is_resident: Callable[[AdapterKey], bool]
    free: int
    failed: Collection[AdapterKey] = ()


def looked(before: WarmUp, assignment: Assignment, slots: Slots, now_s: float, policy: WarmPolicy) -> WarmUp:
    """After one more look. Without a free slot nothing more comes in the background, and nothing is waited for."""
    if before.over:
        return before
    waited_s = now_s - before.since_s
    planned = 0 < assignment.shards == len(assignment.parts)
    to_come = min(slots.free, _missing(assignment, slots, policy) if planned else policy.adapters)
    if not to_come:
        return _over(before, "all that was waited for is in its slots" if planned else "it has nothing to wait for")
    if waited_s >= policy.deadline_s:
        left = f"{to_come} adapters had not come" if planned else "nothing was planned for its slots"
        return _over(before, f"{left} within {policy.deadline_s:g} s")
    if not planned:
        within = f"nothing was planned for its slots within {policy.plan_s:g} s"
        return _over(before, within) if waited_s >= policy.plan_s else before
    return msgspec.structs.replace(before, to_come=to_come, reason=f"{to_come} adapters are still to come")


def _missing(assignment: Assignment, slots: Slots, policy: WarmPolicy) -> int:
    wanted = (key for key, each in assignment.wanted().items() if each.tier == "gpu")
    return sum(not slots.is_resident(key) and key not in slots.failed for key in islice(wanted, policy.adapters))


def _over(before: WarmUp, reason: str) -> WarmUp:
    return msgspec.structs.replace(before, over=True, to_come=0, reason=reason)
