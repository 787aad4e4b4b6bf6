"""Placement's own side of the bus: what it has written there, and what it is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from services.placement.core.decide import newest_epoch
from services.placement.core.shards import ShardKey
from services.placement.io.ledger import Ledger
from shared.bus.port import Bus, Change, Ids, Subscription
from shared.contracts.catalog import FLEET, MEMBERSHIP, OWNERS
from shared.messages.desired import AssignmentShard, Membership, OwnerCount
from shared.messages.operations import AskFleet, AskOwners, FleetView, Owners

M = TypeVar("M")


class Desk:
    def __init__(
        self,
        bus: Bus,
        memberships: Ledger[Membership],
        owner_counts: Ledger[OwnerCount],
        shards: Ledger[AssignmentShard],
    ) -> None:
        self.memberships = memberships
        self.owner_counts = owner_counts
        self.shards = shards
        self._bus = bus
        self._open: list[Subscription] = []

    @property
    def connected(self) -> bool:
        return self._bus.connected

    async def read(self) -> None:
        """Learn what is stored, whoever wrote it. Raises BusUnavailable."""
        await self.memberships.read()
        await self.owner_counts.read()
        await self.shards.read()

    async def open(
        self,
        on_fleet: Callable[[AskFleet], FleetView],
        on_owners: Callable[[AskOwners], Owners],
        on_epoch: Callable[[int], Awaitable[None]],
    ) -> None:
        """Answer questions, and tell `on_epoch` the epoch of every membership that anybody writes.
        Raises BusUnavailable; `close` ends what began."""

        async def tell_epoch(change: Change[Membership]) -> None:
            if change.value is not None:
                await on_epoch(change.value.epoch)

        async def answer_fleet(question: AskFleet, ids: Ids) -> FleetView:
            return on_fleet(question)

        async def answer_owners(question: AskOwners, ids: Ids) -> Owners:
            return on_owners(question)

        self._open.append(await self._bus.state(MEMBERSHIP).watch(tell_epoch))
        self._open.append(await self._bus.serve(FLEET, answer_fleet))
        self._open.append(await self._bus.serve(OWNERS, answer_owners))

    async def close(self) -> None:
        while self._open:
            await self._open.pop().close()

    def newest_epoch(self) -> int:
        return newest_epoch(self.memberships.values.values(), self.shards.values.values())

    def stored_memberships(self) -> dict[str, Membership]:
        return _by_id(self.memberships.values)

    def stored_owner_counts(self) -> dict[str, OwnerCount]:
        return _by_id(self.owner_counts.values)

    def stored_shards(self) -> dict[ShardKey, AssignmentShard]:
        return {(ids[0], ids[1]): shard for ids, shard in self.shards.values.items()}


def _by_id(values: Mapping[Ids, M]) -> dict[str, M]:
    """The values of a bucket whose keys are one id."""
    return {ids[0]: value for ids, value in values.items()}
