"""Who may get one request, and how far one may be filled by it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from services.gateway.core.pool import Pool
from services.gateway.core.question import RoutingPolicy
from services.gateway.core.replica import Seat


class Contenders:
    """The usable seats of some pools, in order of their replicas' ids. `excluded` replicas cannot have this request;
    they count in the mean all the same, since they carry load. `full`: as many requests as rows, where that matters."""

    __slots__ = ("_bounded", "_excluded", "_limit", "_tokens", "full", "pools", "seats")

    def __init__(self, pools: Sequence[Pool], tokens: int, excluded: Set[str], policy: RoutingPolicy) -> None:
        whole = pools[0] if len(pools) == 1 else _together(pools)
        self.pools = pools
        self.seats: Sequence[Seat] = whole.usable
        self._excluded = excluded
        self._tokens = tokens
        self._bounded = policy.bounded
        self.full = policy.bounded and whole.requests >= whole.max_rows
        self._limit = math.inf
        if policy.bounded and whole.requests > policy.spill_above * whole.max_rows:
            # Consistent hashing with bounded loads, once the pools are busy enough for it to matter.
            self._limit = policy.bound * ((whole.load_tokens + tokens) / whole.weight)

    def after(self, seat: Seat) -> float:
        """How full the seat would be with the request: tokens in flight for each unit of weight."""
        return (seat.load_tokens + self._tokens) / seat.weight

    def fits(self, seat: Seat) -> bool:
        """It may have the request, and stays within the bound with it."""
        return seat.usable and seat.replica_id not in self._excluded and self.after(seat) <= self._limit

    def has_room(self, seat: Seat) -> bool:
        """It fits, and would not have to wait there for a row."""
        return self.fits(seat) and (not self._bounded or seat.replica.requests < seat.replica.max_rows)

    def hurried(self, seat: Seat) -> float:
        """How full it would be, with what was sent there since its last report counted twice: prompts are computed one
        after the other, so that several at once wait for each other however many rows are free."""
        return self.after(seat) + seat.replica.sends.promised_tokens / seat.weight

    def waiting(self, seat: Seat) -> int:
        """How many requests there have no row."""
        return seat.replica.requests - seat.replica.max_rows

    def open(self) -> Sequence[Seat]:
        """All that may have the request."""
        return [seat for seat in self.seats if seat.replica_id not in self._excluded] if self._excluded else self.seats

    def spared(self) -> Sequence[Seat]:
        """All that could have it as well, were they not left to warm."""
        return [seat for pool in self.pools for seat in pool.spared if seat.replica_id not in self._excluded]

    def fitting(self) -> Sequence[Seat]:
        """All that stay within the bound, too."""
        return self.open() if self._limit == math.inf else [seat for seat in self.seats if self.fits(seat)]

    def lightest(self, seats: Iterable[Seat]) -> Seat:
        """The first of the least loaded ones. Raises ValueError if there are none."""
        return min(seats, key=self.after)


class _Together(NamedTuple):
    """Several pools as one."""

    usable: Sequence[Seat]
    load_tokens: int
    requests: int
    max_rows: int
    weight: float


def _together(pools: Sequence[Pool]) -> _Together:
    return _Together(
        usable=sorted((seat for pool in pools for seat in pool.usable), key=lambda seat: seat.replica_id),
        load_tokens=sum(pool.load_tokens for pool in pools),
        requests=sum(pool.requests for pool in pools),
        max_rows=sum(pool.max_rows for pool in pools),
        weight=sum(pool.weight for pool in pools),
    )
