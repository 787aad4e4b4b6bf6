"""Requests that had their turn: in the engine, or on their way into it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from services.replica_worker.core.row_ends import Row
from services.replica_worker.core.slot import Place
from services.replica_worker.requests.running import Running
from services.replica_worker.requests.waiting_room import Ticket


class Handed:
    def __init__(self) -> None:
        self._tickets: dict[Running, Ticket] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, running: Running) -> bool:
        return running in self._tickets

    def add(self, ticket: Ticket) -> None:
        self._tickets[ticket.running] = ticket

    @property
    def without_token(self) -> int:
        """How many have had no first token yet."""
        return sum([running.first_token_at_s is None for running in self._tickets])

    def rows(self, most: int) -> list[Row]:
        """How far the furthest of them are."""
        found = (
            Row(each.produced, each.answer_tokens_limit - each.continued_from - each.produced) for each in self._tickets
        )
        return sorted(found, key=lambda row: row.produced, reverse=True)[:most]

    def take(self, running: Running) -> None:
        """Idempotent."""
        self._tickets.pop(running, None)

    def on_slot(self, slot: int) -> list[Ticket]:
        return self._by_slot()[slot]

    def pausable(self, places: Iterable[Place]) -> dict[int, frozenset[str]]:
        """Slots on which nothing but requests with a first token and a proof stand, and whose they are."""
        by_slot = self._by_slot()
        return {
            place.slot: frozenset(ticket.running.request.tenant_id for ticket in by_slot[place.slot])
            for place in places
            if place.references == len(by_slot[place.slot]) > 0
            and all(ticket.running.pausable for ticket in by_slot[place.slot])
        }

    def broken_invariants(self, slots: int) -> list[str]:
        keyed = [running for running, ticket in self._tickets.items() if ticket.key is not None]
        broken = []
        if any(running.reference is None for running in keyed):
            broken.append("a request is on its way into the engine without a reference")
        if len({running.key for running in keyed}) > slots:
            broken.append(f"more adapters run than there are slots: {slots}")
        return broken

    def _by_slot(self) -> defaultdict[int, list[Ticket]]:
        by_slot: defaultdict[int, list[Ticket]] = defaultdict(list)
        for ticket in self._tickets.values():
            if ticket.running.reference is not None:
                by_slot[ticket.running.reference.slot].append(ticket)
        return by_slot
