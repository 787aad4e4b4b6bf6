"""What is said over the socket of a local supervisor: which replicas of a pool run under it, and which should.

One JSON object a line each way, a question a connection.
"""

from __future__ import annotations

import msgspec


class AskReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """Without `desired` nothing is changed. Otherwise the replicas named in `remove` are stopped, and then as many are
    started as are missing from `desired`. `merged_id`, with `merged_digest`, names the adapter that those of this pool
    have merged into their base. `epoch` is that of the lease of whoever orders: an order with a lower one than has been
    carried out is refused, as it was under way while its sender was paused."""

    pool_id: str
    desired: int | None = None
    remove: tuple[str, ...] = ()
    merged_id: str = ""
    merged_digest: str = ""
    epoch: int = 0


class ReplicasTold(msgspec.Struct, frozen=True, kw_only=True):
    """Those that run or are being started, as it is after the question. `known` false: the pool is none of this
    supervisor's. `error` is one sentence for what could not be done; what was done before stays done."""

    replica_ids: tuple[str, ...] = ()
    known: bool = True
    error: str = ""
