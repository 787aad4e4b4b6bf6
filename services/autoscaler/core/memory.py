"""What deciding about a pool again needs to remember, and what was decided."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class PoolMemory(msgspec.Struct, frozen=True, kw_only=True):
    """`PoolMemory()` is a pool seen for the first time: to begin with, what is there is what is wanted."""

    desired: int | None = None
    drains: Mapping[str, float] = {}
    """Replicas that drain by our order, and since when."""


class PoolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`desired` replicas should serve. `drain` names all that should drain now by our order, `undrain` those that no
    longer should; `remove` those that may go now. `exist` is how many should exist after that, those included that
    still drain; `start` how many of them are missing."""

    pool_id: str
    desired: int
    reason: str
    memory: PoolMemory
    exist: int = 0
    start: int = 0
    drain: tuple[str, ...] = ()
    undrain: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
