"""Fair shares by tokens: a virtual counter per customer, as in "Fairness in Serving Large Language Models" (VTC)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_LEAST_WEIGHT = 0.001
"""A customer without a share would wait for ever."""


@dataclass
class TokenCounters:
    """Tokens served to each customer, input and output alike, divided by its weight.

    Whoever waits with the smallest counter is next. As long as two customers both have requests waiting, their
    counters differ by no more than what one batch can produce. A customer that had nothing waiting saved up
    nothing: it is lifted to the least of those who wait. One number stays for every customer that was ever here.
    """

    _weights: dict[str, float] = field(default_factory=dict)
    _counters: dict[str, float] = field(default_factory=dict)
    _waiting: Counter[str] = field(default_factory=Counter)
    _last_left: float = 0.0

    def weigh(self, tenant_id: str, weight: float) -> None:
        """From here on; what was served before keeps the weight it was served with."""
        self._weights[tenant_id] = max(weight, _LEAST_WEIGHT)

    def forget_weight(self, tenant_id: str) -> None:
        self._weights.pop(tenant_id, None)

    def weight(self, tenant_id: str) -> float:
        return self._weights.get(tenant_id, 1.0)

    def of(self, tenant_id: str) -> float:
        """Its virtual time, in tokens per weight."""
        return self._counters.get(tenant_id, 0.0)

    def enter(self, tenant_id: str) -> None:
        """One more request of this customer waits. Pair with `leave`."""
        if not self._waiting[tenant_id]:
            self._counters[tenant_id] = max(self.of(tenant_id), self._floor())
        self._waiting[tenant_id] += 1

    def leave(self, tenant_id: str) -> None:
        """It waits no more: it was started, or it gave up."""
        if self._waiting[tenant_id] < 1:
            raise ValueError(f"no request of {tenant_id} waits")
        self._waiting[tenant_id] -= 1
        if not self._waiting[tenant_id]:
            del self._waiting[tenant_id]
            self._last_left = self.of(tenant_id)

    def charge(self, tenant_id: str, tokens: int) -> None:
        self._counters[tenant_id] = self.of(tenant_id) + tokens / self.weight(tenant_id)

    def _floor(self) -> float:
        return min((self.of(tenant_id) for tenant_id in self._waiting), default=self._last_left)
