"""A replica that lets evaluations wait."""

from __future__ import annotations

import asyncio
from typing import Self

from shared.bus.port import Ids
from shared.messages.operations import EvaluateAdapter, Evaluation
from tests.support.registry_place import POOL, Place
from tests.support.registry_world import FakePlacement, FakeReplica


class HeldReplica(FakeReplica):
    """Answers evaluations from when `may` is set."""

    def __init__(self, replica_id: str) -> None:
        super().__init__(replica_id)
        self.may = asyncio.Event()

    @classmethod
    async def at(cls, place: Place) -> Self:
        """The only one there."""
        replica = cls("replica-held")
        await replica.serve(place.broker.connect("replica_worker"))
        await FakePlacement(POOL, (replica.replica_id,)).serve(place.broker.connect("placement"))
        return replica

    async def _evaluate(self, question: EvaluateAdapter, ids: Ids) -> Evaluation:
        answered = await super()._evaluate(question, ids)
        await self.may.wait()
        return answered
