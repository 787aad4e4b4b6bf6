"""One pool as this gateway knows it: its members, who of them is usable, and how much they have to do in all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter

from services.gateway.core.rankings import Rankings
from services.gateway.core.replica import Replica, Seat
from shared.messages.desired import Membership

_NAME = attrgetter("replica_id")


class Pool:
    """`usable` are seats in order of their replicas' ids: those that are able and warm, or all that are able while
    none is warm; `spared` are the others that are able. The sums `load_tokens`, `requests`, `max_rows` and `weight`
    are over the usable ones, and kept up with every report and every request, so that a decision need not add them up.
    """

    def __init__(self, pool_id: str) -> None:
        self.pool_id = pool_id
        self.epoch = 0
        self.seats: dict[str, Seat] = {}
        self.usable: list[Seat] = []
        self.spared: list[Seat] = []
        self.load_tokens = self.requests = self.max_rows = 0
        self.weight = 0.0
        self.rankings = Rankings({})

    def put(self, membership: Membership, replica: Callable[[str], Replica]) -> None:
        """`replica` finds one by its id. Members without weight own nothing and have no seat."""
        weights = {name: seat.weight for name, seat in self.seats.items()}
        members = {member.replica_id: member for member in membership.members if member.weight > 0}
        for name in self.seats.keys() - members.keys():
            self.seats.pop(name).leave()
        for name in sorted(members):
            if name not in self.seats:
                self.seats[name] = Seat(self, replica(name))
            self.seats[name].put(members[name])
        self.epoch = membership.epoch
        if weights != {name: seat.weight for name, seat in self.seats.items()}:
            self.rankings = self.rankings.renewed(self.seats)

    def close(self) -> None:
        for seat in self.seats.values():
            seat.leave()

    def on_able(self, seat: Seat) -> None:
        warm = any(each.able and not each.warming for each in self.seats.values())
        for each in (seat, *self.seats.values()):
            self._use(each, each.able and not (each.warming and warm))
        self.spared = sorted((each for each in self.seats.values() if each.able and not each.usable), key=_NAME)

    def _use(self, seat: Seat, usable: bool) -> None:
        if usable is seat.usable:
            return
        seat.usable = usable
        place = bisect_left(self.usable, seat.replica_id, key=_NAME)
        if usable:
            self.usable.insert(place, seat)
        else:
            del self.usable[place]
        sign = 1 if usable else -1
        replica = seat.replica
        self.on_weighed(sign * replica.load_tokens, sign * replica.requests, sign * replica.max_rows)
        self.weight = sum(each.weight for each in self.usable)

    def on_weighed(self, load_tokens: int, requests: int, max_rows: int) -> None:
        self.load_tokens += load_tokens
        self.requests += requests
        self.max_rows += max_rows
