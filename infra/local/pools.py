"""The pools of an embedded fleet besides its first one: other bases, other ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass

_POOL = re.compile(r"(?:(?P<model>.+):)?r(?P<rank>[1-9]\d{0,3})(?:x(?P<replicas>[1-9]\d?))?")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Replicas of one base and one rank class. `model` None is the fleet's own base model."""

    model: str | None
    rank_limit: int
    replicas: int


def parse_pool(text: str) -> Pool:
    """`r64x2`, `/models/next:r16`: a rank limit and a number of replicas, on another model if one is named.

    Raises ValueError.
    """
    match = _POOL.fullmatch(text)
    if match is None:
        raise ValueError(f"MORE_POOLS holds {text!r}, which does not look like r64x2 or /models/next:r16x1")
    return Pool(model=match["model"], rank_limit=int(match["rank"]), replicas=int(match["replicas"] or 1))


def rank_classes(pools: tuple[Pool, ...], model: str | None) -> tuple[int, ...]:
    """Those that adapters on this model may choose from."""
    return tuple(sorted({pool.rank_limit for pool in pools if pool.model == model}))
