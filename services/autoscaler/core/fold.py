"""The last reports of everybody, folded into the load of each pool at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.messages.reports import GatewayReport, ReplicaReport


class SilencePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Reports come every second. A silent replica is named and no longer counted; a forgotten one is not
    even named."""

    silent_after_s: float = 3.0
    forgotten_after_s: float = 30.0


class HeardReplica(msgspec.Struct, frozen=True, kw_only=True):
    report: ReplicaReport
    at_s: float


class HeardGateway(msgspec.Struct, frozen=True, kw_only=True):
    report: GatewayReport
    at_s: float


class PoolLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One pool now. Loads and capacities are sums over the replicas that are heard; `busy` of them have
    all rows taken or requests waiting, so that their `busy_tokens_per_s` is what they can do."""

    pool_id: str
    ready: int = 0
    starting: int = 0
    draining: int = 0
    silent: int = 0
    running: int = 0
    queue_depth: int = 0
    tokens_in_flight: int = 0
    queued_tokens: float = 0.0
    tokens_per_s: float = 0.0
    evictions_per_min: float = 0.0
    slots: int = 0
    slots_busy: int = 0
    rows: int = 0
    busy: int = 0
    busy_tokens_per_s: float = 0.0

    @property
    def replicas(self) -> int:
        return self.ready + self.starting + self.draining + self.silent


def newer(before: HeardReplica | None, report: ReplicaReport, now_s: float) -> HeardReplica:
    """What is known after one more report; one that was heard before is no sign of life."""
    same = before is not None and before.report.incarnation == report.incarnation
    if before is not None and same and report.sequence <= before.report.sequence:
        return before
    return HeardReplica(report=report, at_s=now_s)


def loads(heard: Iterable[HeardReplica], now_s: float, policy: SilencePolicy) -> dict[str, PoolLoad]:
    """The load of every pool with at least one replica that is not forgotten."""
    pools: dict[str, PoolLoad] = {}
    for replica in heard:
        if now_s - replica.at_s > policy.forgotten_after_s:
            continue
        pool_id = replica.report.pool_id
        load = pools.get(pool_id, PoolLoad(pool_id=pool_id))
        silent = now_s - replica.at_s > policy.silent_after_s
        pools[pool_id] = _silent(load) if silent else _plus(load, replica.report)
    return pools


def silent_replicas(heard: Mapping[str, HeardReplica], now_s: float, policy: SilencePolicy) -> tuple[str, ...]:
    """Who was heard once and is not heard now."""
    return tuple(
        replica_id
        for replica_id, replica in sorted(heard.items())
        if policy.silent_after_s < now_s - replica.at_s <= policy.forgotten_after_s
    )


def queued_tokens(report: ReplicaReport) -> float:
    """What a replica's waiting requests have been promised: their share of its tokens in flight. It counts
    whole prompts and all of `max_tokens`, so it errs towards too much."""
    requests = report.running + report.queue_depth
    return report.tokens_in_flight * report.queue_depth / requests if requests else 0.0


def _silent(load: PoolLoad) -> PoolLoad:
    # Its last figures are stale, and counting them would keep a load alive that others have taken over.
    return msgspec.structs.replace(load, silent=load.silent + 1)


def _plus(load: PoolLoad, report: ReplicaReport) -> PoolLoad:
    serves = report.ready and not report.draining
    busy = serves and (report.queue_depth > 0 or (report.max_rows > 0 and report.running >= report.max_rows))
    return msgspec.structs.replace(
        load,
        ready=load.ready + serves,
        starting=load.starting + (not report.ready and not report.draining),
        draining=load.draining + report.draining,
        running=load.running + report.running,
        queue_depth=load.queue_depth + report.queue_depth,
        tokens_in_flight=load.tokens_in_flight + report.tokens_in_flight,
        queued_tokens=load.queued_tokens + queued_tokens(report),
        tokens_per_s=load.tokens_per_s + report.tokens_per_s,
        evictions_per_min=load.evictions_per_min + report.evictions_per_min,
        slots=load.slots + report.slots * serves,
        slots_busy=load.slots_busy + report.slots_busy * serves,
        rows=load.rows + report.max_rows * serves,
        busy=load.busy + busy,
        busy_tokens_per_s=load.busy_tokens_per_s + report.tokens_per_s * busy,
    )
