"""Who comes first for each adapter of a pool, found once for as long as the members and their weights stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from services.gateway.core.replica import Seat
from shared.hashing import Field, hashes

_KEPT = 8
"""Seats remembered of each ranking: the owners, and those to whom requests spill first."""
_MOST = 65_536
"""Rankings remembered; the oldest go first."""


class Rankings:
    """Remembers what it has found: that is quick, and changes no answer. `expected` are adapters that will be asked
    for, the likeliest first; many at once are ranked far quicker than each by itself."""

    def __init__(self, seats: Mapping[str, Seat], expected: Iterable[str] = ()) -> None:
        self._field = Field({name: seat.weight for name, seat in seats.items()})
        self._seats = tuple(seats[name] for name in self._field.names)
        self._first: dict[str, tuple[Seat, ...]] = {}
        self._expected = dict.fromkeys(islice(expected, _MOST))

    def renewed(self, seats: Mapping[str, Seat]) -> Rankings:
        """For other members or weights; what was known or expected is expected."""
        return Rankings(seats, (*self._first, *self._expected))

    def expect(self, adapter_id: str) -> None:
        if adapter_id not in self._first and len(self._expected) < _MOST:
            self._expected[adapter_id] = None

    def rank_ahead(self, most: int) -> int:
        """Rank so many of those expected, and say how many it were."""
        adapter_ids = list(islice(self._expected, most if self._seats else 0))
        places, _ = self._field.nearest(hashes(adapter_ids), _KEPT)
        for adapter_id, row in zip(adapter_ids, places.tolist(), strict=True):
            self._remember(adapter_id, tuple(self._seats[place] for place in row))
        return len(adapter_ids)

    def first(self, adapter_id: str, count: int) -> tuple[Seat, ...]:
        """At least the first `count` of the ranking, or everybody."""
        known = self._first.get(adapter_id)
        if known is None or (len(known) < count and len(known) < len(self._seats)):
            known = self._rank(adapter_id)[: max(count, _KEPT)]
            self._remember(adapter_id, known)
        return known

    def after(self, adapter_id: str, count: int) -> Iterator[Seat]:
        """Everybody from the place `count` on."""
        known = self.first(adapter_id, count)
        yield from known[count:]
        if len(known) < len(self._seats):
            yield from self._rank(adapter_id)[len(known) :]

    def _rank(self, adapter_id: str) -> tuple[Seat, ...]:
        order = self._field.distances(hashes((adapter_id,))[0]).argsort(kind="stable")
        return tuple(self._seats[place] for place in order.tolist())

    def _remember(self, adapter_id: str, seats: tuple[Seat, ...]) -> None:
        self._expected.pop(adapter_id, None)
        self._first[adapter_id] = seats
        if len(self._first) > _MOST:
            del self._first[next(iter(self._first))]
