"""Each customer's time to first token over the last minutes, and the few customers who are shown by name.

With 20,000 adapters nobody can keep a series for each: shown are the busiest, those with the most late first tokens,
and everybody else as one. The figures of two of these can be added up by adding what was counted in either.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping

import msgspec

from shared.latencies import bucket_of, quantile
from shared.messages.reports import CustomerTtft

REST = "rest"
"""Stands for all who are not named. An adapter that is called so cannot be told from it."""
_SHARE = 0.95


class TtftPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A first token after `objective_s` is late; the objective counts as the end of its bucket, which is exact for one
    second. Of a customer with fewer than `least` first tokens in the window a percentile would say little: it is
    counted, and never called late. `most_kept` bounds memory: beyond it the window is shorter."""

    objective_s: float = 1.0
    window_s: float = 300.0
    busiest: int = 50
    latest: int = 10
    least: int = 5
    most_kept: int = 100_000


class TtftView(msgspec.Struct, frozen=True, kw_only=True):
    """`named` are at most `busiest` + `latest` customers, the one with the highest percentile first; `rest` is
    everybody else, None if that is nobody. `late` is how many of the `customers` are above the objective."""

    named: tuple[CustomerTtft, ...]
    rest: CustomerTtft | None
    customers: int
    late: int


class _Customer:
    """What the window holds of one customer, or of all."""

    __slots__ = ("counts", "first_tokens", "late")

    def __init__(self) -> None:
        self.first_tokens = self.late = 0
        self.counts: dict[int, int] = {}

    def add(self, bucket: int, count: int, late: int) -> None:
        self.first_tokens += count
        self.late += late
        left = self.counts.get(bucket, 0) + count
        if left:
            self.counts[bucket] = left
        else:
            del self.counts[bucket]


class TtftByCustomer:
    """A fold. Adding costs the same however many customers there are: what is too old goes as the new comes."""

    def __init__(self, policy: TtftPolicy) -> None:
        self._policy = policy
        self._punctual = bucket_of(policy.objective_s)
        self._kept: deque[tuple[float, str, int, int]] = deque()
        self._customers: dict[str, _Customer] = {}
        self._all = _Customer()

    def first_token(self, adapter_id: str, ttft_s: float, now_s: float) -> None:
        self.add(adapter_id, bucket_of(ttft_s), 1, now_s)

    def add(self, adapter_id: str, bucket: int, count: int, now_s: float) -> None:
        """So many first tokens of one bucket, as somebody else counted them."""
        self._forget(now_s)
        if len(self._kept) >= self._policy.most_kept:
            self._drop()
        self._kept.append((now_s, adapter_id, bucket, count))
        self._count(adapter_id, bucket, count)

    def view(self, now_s: float) -> TtftView:
        self._forget(now_s)
        busiest = heapq.nlargest(self._policy.busiest, self._customers.items(), key=lambda each: each[1].first_tokens)
        late = [(adapter_id, each) for adapter_id, each in self._customers.items() if self._is_late(each)]
        latest = heapq.nlargest(self._policy.latest, late, key=lambda each: each[1].late)
        named = dict((*busiest, *latest))
        shown = sorted((_said(adapter_id, each) for adapter_id, each in named.items()), key=lambda one: -one.p95_s)
        return TtftView(
            named=tuple(shown), rest=self._rest(named), customers=len(self._customers), late=len(late)
        )  # fmt: skip

    def _rest(self, named: Mapping[str, _Customer]) -> CustomerTtft | None:
        if len(named) == len(self._customers):
            return None
        rest = _Customer()
        for customer, sign in ((self._all, 1), *((each, -1) for each in named.values())):
            for bucket, count in customer.counts.items():
                rest.add(bucket, sign * count, 0)
        return _said(REST, rest)

    def _is_late(self, customer: _Customer) -> bool:
        """Whether its percentile is: so many are late that the one of that rank is."""
        measured = customer.first_tokens
        return measured >= self._policy.least and customer.late > measured - math.ceil(_SHARE * measured)

    def _forget(self, now_s: float) -> None:
        while self._kept and now_s - self._kept[0][0] > self._policy.window_s:
            self._drop()

    def _drop(self) -> None:
        _, adapter_id, bucket, count = self._kept.popleft()
        self._count(adapter_id, bucket, -count)
        if not self._customers[adapter_id].first_tokens:
            del self._customers[adapter_id]

    def _count(self, adapter_id: str, bucket: int, count: int) -> None:
        late = count if bucket > self._punctual else 0
        customer = self._customers.get(adapter_id)
        if customer is None:
            customer = self._customers[adapter_id] = _Customer()
        customer.add(bucket, count, late)
        self._all.add(bucket, count, late)


def _said(adapter_id: str, customer: _Customer) -> CustomerTtft:
    p95_s = quantile(customer.counts, _SHARE)
    assert p95_s is not None, "a customer without first tokens is forgotten"
    return CustomerTtft(adapter_id=adapter_id, first_tokens=customer.first_tokens, p95_s=p95_s)
