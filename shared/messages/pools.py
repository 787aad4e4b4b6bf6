"""Pools: replicas that can stand in for each other, and the adapters that fit them."""

from __future__ import annotations

from collections.abc import Sequence


def pool_id(base_model_hash: str, rank_class: int, merged_digest: str | None = None) -> str:
    """The name of the pool (base model, rank class, merged or not), safe as one subject token."""
    merged = f"-m{merged_digest[:12]}" if merged_digest else ""
    return f"{base_model_hash[:12]}-r{rank_class}{merged}"


def smallest_rank_class(rank: int, rank_classes: Sequence[int]) -> int | None:
    """The smallest class that holds `rank`, or None if it fits none."""
    return min((limit for limit in rank_classes if limit >= rank), default=None)
