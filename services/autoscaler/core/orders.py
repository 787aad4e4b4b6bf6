"""What is decided about a pool, and what an actuator is told of it."""

from __future__ import annotations

import msgspec

from shared.messages.identity import AdapterKey


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which replicas an actuator is asked about. With `merged` they have this adapter merged into their base."""

    pool_id: str
    merged: AdapterKey | None = None


class ScaleOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The whole truth about a pool, told every few seconds: carrying it out twice changes nothing.

    First the replicas named in `remove` go, and no others; they are empty, never became ready, or are past their drain
    deadline. Then as many are started as are missing from `desired`: that is how many should exist, those included
    that still drain. `start` is how many of them are missing as far as the autoscaler knows, for logs.
    """

    pool: PoolSpec
    desired: int
    start: int = 0
    remove: tuple[str, ...] = ()
    reason: str = ""
    epoch: int = 0
