"""What replicas cost, and how many a budget pays."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class CostPolicy(msgspec.Struct, frozen=True, kw_only=True):
    usd_per_replica_hour: float = 2.5
    budget_usd_per_hour: float | None = None
    """Of the whole fleet; None: no budget."""


def affordable(pool_id: str, desired: Mapping[str, int], policy: CostPolicy) -> int | None:
    """How many replicas of this pool the budget pays beside what the other pools wish for."""
    if policy.budget_usd_per_hour is None or not policy.usd_per_replica_hour:
        return None
    others = sum(count for other, count in desired.items() if other != pool_id)
    return max(0, int(policy.budget_usd_per_hour / policy.usd_per_replica_hour) - others)


def usd_per_hour(replicas: int, policy: CostPolicy) -> float:
    return replicas * policy.usd_per_replica_hour


def usd_per_million_tokens(usd_an_hour: float, tokens_per_s: float) -> float | None:
    """None without tokens: what they cost cannot be said."""
    return usd_an_hour / (tokens_per_s * 3_600.0) * 1e6 if tokens_per_s > 0 else None
