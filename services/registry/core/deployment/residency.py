"""Whether a version may take over: is it in a slot where requests for it will go?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shared.messages.operations import ReplicaSummary

_WITHOUT_OWNERS = 2
"""How many replicas are asked while placement names no owner that is ready."""


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """`ok`: requests may come. `reason` is one sentence's worth for whoever asked."""

    ok: bool
    reason: str


def whom_to_ask(pool_id: str, replicas: Sequence[ReplicaSummary], owners: Sequence[str]) -> tuple[str, ...]:
    """The owners that are ready; without any, those ready replicas of the pool that have promised least."""
    ready = [one for one in replicas if one.pool_id == pool_id and one.ready and not one.draining]
    names = {one.replica_id for one in ready}
    if chosen := tuple(owner for owner in owners if owner in names):
        return chosen
    ready.sort(key=lambda one: (one.tokens_in_flight, one.replica_id))
    return tuple(one.replica_id for one in ready[:_WITHOUT_OWNERS])


def judge_residency(adapter_id: str, troubles: Mapping[str, str | None]) -> Residency:
    """`troubles` has for each replica that was asked what stood in the way, None where the adapter is resident."""
    if resident := sorted(name for name, trouble in troubles.items() if trouble is None):
        return Residency(ok=True, reason=f"{adapter_id} is resident on {', '.join(resident)}")
    said = "; ".join(f"{name}: {trouble}" for name, trouble in sorted(troubles.items()))
    return Residency(ok=False, reason=f"no owner could make {adapter_id} resident ({said})")


def nobody_ready(adapter_id: str, pool_id: str) -> Residency:
    """Nothing is lost by moving: whoever comes up first loads what is then meant."""
    return Residency(ok=True, reason=f"no replica of pool {pool_id} is ready; {adapter_id} is loaded when one is")


def not_asked(trouble: str) -> Residency:
    return Residency(ok=False, reason=f"placement cannot be asked who owns it ({trouble})")
