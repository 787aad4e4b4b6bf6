"""Pools: replicas that can stand in for each other, and the adapters that fit them."""

from __future__ import annotations

from collections.abc import Sequence


def pool_id(base_model_hash: str, rank_class: int, merged_digest: str | None = None) -> str:
    """The name of the pool (base model, rank class, merged or not), safe as one subject token."""
    pool = f"{base_model_hash[:12]}-r{rank_class}"
    return merged_pool_id(pool, merged_digest) if merged_digest else pool


def merged_pool_id(pool: str, digest: str) -> str:
    """Of the replicas that have this adapter of `pool` merged into their base, and serve it alone."""
    return f"{pool}-m{digest[:12]}"


def is_merged(pool: str) -> bool:
    return "-m" in pool


def base_of(pool: str) -> str:
    """The pool whose adapter a merged one has in its base; any other is its own."""
    return pool.partition("-m")[0]


def smallest_rank_class(rank: int, rank_classes: Sequence[int]) -> int | None:
    """The smallest class that holds `rank`, or None if it fits none."""
    return min((limit for limit in rank_classes if limit >= rank), default=None)
