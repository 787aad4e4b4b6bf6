"""Placement's own side of the bus: what it writes there while it leads, and what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from services.placement.core.decide import Stored
from services.placement.core.tick import Decision
from shared.bus.port import Bus, Ids, Subscription
from shared.contracts.catalog import FLEET, OWNERS
from shared.leadership.leader import Leader
from shared.leadership.ledger import Fenced, Ledger
from shared.messages.desired import AssignmentShard, Membership, OwnerCount, PoolPressure
from shared.messages.operations import AskFleet, AskOwners, FleetView, Owners

F = TypeVar("F", bound=Fenced)
M = TypeVar("M")


@dataclass(frozen=True, kw_only=True)
class Ledgers:
    memberships: Ledger[Membership]
    owner_counts: Ledger[OwnerCount]
    shards: Ledger[AssignmentShard]
    pressures: Ledger[PoolPressure]


class Desk:
    def __init__(self, bus: Bus, leader: Leader, ledgers: Ledgers) -> None:
        self.leader = leader
        self.memberships = ledgers.memberships
        self.owner_counts = ledgers.owner_counts
        self.shards = ledgers.shards
        self.pressures = ledgers.pressures
        self._bus = bus
        self._open: list[Subscription] = []

    @property
    def connected(self) -> bool:
        return self._bus.connected

    async def read(self) -> None:
        """Learn what is stored, whoever wrote it, and never lead with a lower epoch. Raises BusUnavailable."""
        for ledger in (self.memberships, self.owner_counts, self.shards, self.pressures):
            await ledger.read()
            self.leader.heed(ledger.newest_epoch)

    async def open(self, on_fleet: Callable[[AskFleet], FleetView], on_owners: Callable[[AskOwners], Owners]) -> None:
        """Answer questions. Raises BusUnavailable; `close` ends what began."""

        async def answer_fleet(question: AskFleet, ids: Ids) -> FleetView:
            return on_fleet(question)

        async def answer_owners(question: AskOwners, ids: Ids) -> Owners:
            return on_owners(question)

        self._open.append(await self._bus.serve(FLEET, answer_fleet))
        self._open.append(await self._bus.serve(OWNERS, answer_owners))

    async def close(self) -> None:
        while self._open:
            await self._open.pop().close()

    def stored(self) -> Stored:
        """As it is now: what is written later does not change it."""
        return Stored(
            memberships=_by_id(self.memberships.values),
            owner_counts=_by_id(self.owner_counts.values),
            pressures=_by_id(self.pressures.values),
            shards={(ids[0], ids[1]): shard for ids, shard in self.shards.values.items()},
        )

    async def carry_out(self, decision: Decision, epoch: int, wrote: Callable[[str], None]) -> None:
        """Write what differs, memberships first: gateways rank from them at once, and they fence off an older
        placement. `wrote` is told of the bucket of each value that was written. Raises NotLeading, Superseded and
        BusUnavailable, after which a part may be written; calling again is safe."""

        async def write(ledger: Ledger[F], value: F, *ids: str) -> None:
            if await ledger.write(value, *ids):
                wrote(ledger.name)

        for membership in decision.memberships:
            await write(self.memberships, membership, membership.pool_id)
        for count in decision.owner_counts:
            await write(self.owner_counts, count, count.pool_id)
        for pressure in decision.pressures:
            await write(self.pressures, pressure, pressure.pool_id)
        for key, shard in decision.shards.puts:
            await write(self.shards, shard, *key)
        for key in decision.shards.deletes:
            await self.shards.remove(epoch, *key)


def _by_id(values: Mapping[Ids, M]) -> dict[str, M]:
    """The values of a bucket whose keys are one id."""
    return {ids[0]: value for ids, value in values.items()}
