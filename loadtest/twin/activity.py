"""What a gateway counts of its customers' requests, told once a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from loadtest.twin.request import Request
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity

Steps = Callable[[], dict[str, int]]
"""How many steps of each replica are over."""


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    finished: int = 0
    tokens: int = 0


@dataclass(slots=True)
class _PoolCounts:
    requests: int = 0
    refused: int = 0
    first_tokens: int = 0
    late_first_tokens: int = 0
    tokens: int = 0
    adapters: dict[str, _Counts] = field(default_factory=dict)


class Activity:
    def __init__(self, gateway_id: str, objective_s: float, steps: Steps) -> None:
        self._gateway_id = gateway_id
        self._objective_s = objective_s
        self._steps = steps
        self._pools: dict[str, _PoolCounts] = {}
        self._sequence = 0

    def began(self, request: Request) -> None:
        pool = self._pool(request)
        pool.requests += 1
        _of(pool, request).requests += 1

    def first_token(self, request: Request, after_s: float) -> None:
        pool = self._pool(request)
        pool.first_tokens += 1
        pool.late_first_tokens += after_s > self._objective_s

    def ended(self, request: Request) -> None:
        if request.outcome == "ok":
            self._count(request, request.call.output_tokens)
            _of(self._pool(request), request).finished += 1
        elif request.first_s is None:
            self._pool(request).refused += 1

    def message(self, live: Iterable[Request], interval_s: float) -> GatewayActivity:
        """What happened since the last one; `live` requests' tokens so far are among it."""
        steps = self._steps()
        for request in live:
            attempt = request.attempt
            if attempt is None or request.first_s is None:
                continue
            tokens = attempt.produced
            if attempt.since_step >= 0:
                tokens += steps.get(attempt.replica_id, attempt.since_step) - attempt.since_step
            if tokens > request.counted:
                self._count(request, tokens)
        pools, self._pools = self._pools, {}
        self._sequence += 1
        return GatewayActivity(
            gateway_id=self._gateway_id,
            sequence=self._sequence,
            interval_s=interval_s,
            pools={pool_id: _told(counts) for pool_id, counts in pools.items()},
        )

    def _count(self, request: Request, tokens: int) -> None:
        more = tokens - request.counted
        if more > 0:
            request.counted = tokens
            pool = self._pool(request)
            pool.tokens += more
            _of(pool, request).tokens += more

    def _pool(self, request: Request) -> _PoolCounts:
        pool = self._pools.get(request.record.pool_id)
        if pool is None:
            pool = self._pools[request.record.pool_id] = _PoolCounts()
        return pool


def _of(pool: _PoolCounts, request: Request) -> _Counts:
    name = request.record.adapter_id
    counts = pool.adapters.get(name)
    if counts is None:
        counts = pool.adapters[name] = _Counts()
    return counts


def _told(counts: _PoolCounts) -> PoolActivity:
    return PoolActivity(
        requests=counts.requests,
        refused=counts.refused,
        first_tokens=counts.first_tokens,
        late_first_tokens=counts.late_first_tokens,
        tokens=counts.tokens,
        adapters={
            name: AdapterActivity(requests=each.requests, finished=each.finished, tokens=each.tokens)
            for name, each in counts.adapters.items()
        },
    )
