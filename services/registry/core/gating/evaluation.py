"""Whom to ask for an evaluation, and what the answers come to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shared.messages.operations import Evaluation, ReplicaSummary


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How an evaluation ends: "active" or "failed"."""

    state: str
    reason: str


def order_replicas(pool_id: str, replicas: Sequence[ReplicaSummary], owners: Sequence[str]) -> tuple[str, ...]:
    """The ready replicas of the pool, in the order to ask them: owners first (they keep what they load),
    then whoever has promised least."""
    ready = [replica for replica in replicas if replica.pool_id == pool_id and replica.ready and not replica.draining]
    place = {replica_id: at for at, replica_id in enumerate(owners)}
    ready.sort(key=lambda one: (place.get(one.replica_id, len(place)), one.tokens_in_flight, one.replica_id))
    return tuple(replica.replica_id for replica in ready)


def judge(evaluation: Evaluation) -> Verdict:
    if evaluation.passed:
        return Verdict(state="active", reason=f"evaluated on {evaluation.replica_id}: {evaluation.reason}")
    return Verdict(state="failed", reason=f"the evaluation on {evaluation.replica_id} failed: {evaluation.reason}")
