"""The desired state on the bus: written by placements, heard by gateways and replicas, kept for newcomers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadtest.twin.agenda import Agenda
from loadtest.twin.wire import Wire
from services.placement.core.decide import Stored
from services.placement.core.tick import Decision, after
from shared.contracts.catalog import ASSIGNMENT, MEMBERSHIP, OWNER_COUNT, PRESSURE
from shared.messages.desired import AssignmentShard, Membership, OwnerCount, PoolPressure

AGAIN_S = 10.0
"""A reader that missed a change is told again when its watch begins anew."""


class Store:
    """`drained` are the replicas with an order to drain. A write of an older epoch than is stored comes from a
    placement that does not know yet that it was replaced: it is not kept, and readers who get it all the same must
    ignore it."""

    def __init__(self, agenda: Agenda, wire: Wire, rank_classes: dict[str, int]) -> None:
        self.stored = Stored()
        self.epoch = 0
        self.drained: set[str] = set()
        self.rank_classes = rank_classes
        self.pressures: dict[str, PoolPressure] = {}
        self.written = 0
        self._agenda = agenda
        self._wire = wire
        self._shard_readers: dict[str, Callable[[AssignmentShard], None]] = {}
        self._told: dict[object, Any] = {}
        self._behind_since_s: dict[object, float] = {}

    def follow(self, replica_id: str, reader: Callable[[AssignmentShard], None]) -> None:
        """A replica's watch: what is there now, then every change."""
        self._shard_readers[replica_id] = reader
        for (name, _), shard in self.stored.shards.items():
            if name == replica_id:
                self._wire.tell(ASSIGNMENT, shard, [reader])

    def unfollow(self, replica_id: str) -> None:
        self._shard_readers.pop(replica_id, None)

    def heard(self, placement: object) -> bool:
        """Whether a placement has had the time to hear of a newer epoch than its own."""
        since_s = self._behind_since_s.setdefault(placement, self._agenda.now_s)
        return self._agenda.now_s > since_s

    def write(self, placement: object, decision: Decision) -> None:
        values: list[tuple[Any, Membership | OwnerCount | PoolPressure]] = [
            *((MEMBERSHIP, each) for each in decision.memberships),
            *((OWNER_COUNT, each) for each in decision.owner_counts),
            *((PRESSURE, each) for each in decision.pressures),
        ]
        epoch = max((each.epoch for each in decision.memberships), default=0)
        for channel, value in values:
            if self._told.get((placement, channel.name, value.pool_id)) != value:
                self._told[placement, channel.name, value.pool_id] = value
                self._wire.tell(channel, value)
                self.written += 1
        for (replica_id, _), shard in decision.shards.puts:
            self.written += 1
            self._send(replica_id, shard)
        if epoch >= self.epoch:
            self.epoch = epoch
            self.stored = after(self.stored, decision)

    def _send(self, replica_id: str, shard: AssignmentShard) -> None:
        reader = self._shard_readers.get(replica_id)
        if reader is None:
            return
        lost_before = self._wire.lost
        self._wire.tell(ASSIGNMENT, shard, [reader])
        if self._wire.lost > lost_before:
            self._agenda.after(AGAIN_S, self._send_again, replica_id, shard)

    def _send_again(self, replica_id: str, shard: AssignmentShard) -> None:
        """The value that stands there by then."""
        latest = self.stored.shards.get((replica_id, str(shard.shard)))
        if latest is not None:
            self._send(replica_id, latest)
