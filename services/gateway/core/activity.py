"""What was asked of this gateway since it last said so, by pool and adapter."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from shared.latencies import bucket_of
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from shared.messages.usage import MOST_BUSY


class ActivityPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A first token after more than `objective_ttft_s` is late. When nothing happens, that is said every `quiet_s`, so
    that readers can tell an idle gateway from a lost one. A message names at most `most_adapters`."""

    objective_ttft_s: float = 1.0
    quiet_s: float = 10.0
    most_adapters: int = MOST_BUSY


class _Adapter:
    """Counts of one adapter in one pool."""

    __slots__ = ("finished", "first_tokens", "requests", "tokens")

    def __init__(self) -> None:
        self.requests = self.finished = self.tokens = 0
        self.first_tokens: dict[int, int] = {}


class _Pool:
    """Counts of one pool."""

    __slots__ = ("adapters", "first_tokens", "late_first_tokens", "refused")

    def __init__(self) -> None:
        self.refused = self.first_tokens = self.late_first_tokens = 0
        self.adapters: defaultdict[str, _Adapter] = defaultdict(_Adapter)


class Activity:
    """A fold. Everything counts where it happens: a request in the pool that is asked first (its own, if nobody can be
    asked), and what comes of it in the pool that serves it. A token counts once, whichever replica it came from."""

    def __init__(self, gateway_id: str, policy: ActivityPolicy, now_s: float) -> None:
        self._gateway_id = gateway_id
        self._policy = policy
        self._pools: defaultdict[str, _Pool] = defaultdict(_Pool)
        self._sequence = 0
        self._taken_at_s = now_s
        self._said_at_s = now_s

    def began(self, pool_id: str, adapter_id: str) -> None:
        self._pools[pool_id].adapters[adapter_id].requests += 1

    def refused(self, pool_id: str) -> None:
        """A request ended without a token because the fleet could not serve it in time."""
        self._pools[pool_id].refused += 1

    def first_token(self, pool_id: str, adapter_id: str, ttft_s: float) -> None:
        pool, bucket = self._pools[pool_id], bucket_of(ttft_s)
        counts = pool.adapters[adapter_id].first_tokens
        counts[bucket] = counts.get(bucket, 0) + 1
        pool.first_tokens += 1
        pool.late_first_tokens += ttft_s > self._policy.objective_ttft_s

    def tokens(self, pool_id: str, adapter_id: str, tokens: int) -> None:
        self._pools[pool_id].adapters[adapter_id].tokens += tokens

    def finished(self, pool_id: str, adapter_id: str) -> None:
        """An answer is whole."""
        self._pools[pool_id].adapters[adapter_id].finished += 1

    def take(self, now_s: float) -> GatewayActivity | None:
        """What happened since the last call, which is then forgotten; None if that was nothing and no sign of life is
        due."""
        interval_s, self._taken_at_s = now_s - self._taken_at_s, now_s
        if not self._pools and now_s - self._said_at_s < self._policy.quiet_s:
            return None
        self._said_at_s = now_s
        self._sequence += 1
        busiest = self._busiest()
        pools = {pool_id: _said(pool, busiest.get(pool_id, {})) for pool_id, pool in self._pools.items()}
        self._pools.clear()
        return GatewayActivity(
            gateway_id=self._gateway_id, sequence=self._sequence, interval_s=interval_s, pools=pools
        )  # fmt: skip

    def _busiest(self) -> dict[str, dict[str, AdapterActivity]]:
        """By pool, those with the most tokens and requests."""
        everybody = [
            (-adapter.tokens, -adapter.requests, adapter_id, pool_id, adapter)
            for pool_id, pool in self._pools.items()
            for adapter_id, adapter in pool.adapters.items()
        ]
        named: dict[str, dict[str, AdapterActivity]] = {}
        for _, _, adapter_id, pool_id, adapter in sorted(everybody, key=lambda each: each[:4])[
            : self._policy.most_adapters
        ]:
            named.setdefault(pool_id, {})[adapter_id] = AdapterActivity(
                requests=adapter.requests, finished=adapter.finished, tokens=adapter.tokens,
                first_tokens=adapter.first_tokens,
            )  # fmt: skip
        return named


def _said(pool: _Pool, adapters: dict[str, AdapterActivity]) -> PoolActivity:
    return PoolActivity(
        requests=sum(adapter.requests for adapter in pool.adapters.values()),
        refused=pool.refused,
        first_tokens=pool.first_tokens,
        late_first_tokens=pool.late_first_tokens,
        tokens=sum(adapter.tokens for adapter in pool.adapters.values()),
        adapters=adapters,
    )
