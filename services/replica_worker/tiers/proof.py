"""The proof that one load put the right weights into its slot.

The load itself is over when the bytes are there. The proof rides along with the first request: its probe is one
short row in the step that computes the request's prompt, and nothing of the slot is let out before it is in.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Protocol

from services.replica_worker.core.effect import Seen
from services.replica_worker.engine.port import EngineFailed
from services.replica_worker.tiers.effect import Effects
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from shared.messages.desired import AdapterRecord


class Rider(Protocol):
    """A request on the slot. No method may raise but `enter`, which may raise EngineFailed."""

    def enter(self) -> None:
        """Go into the engine; what comes out is held back."""

    def withdraw(self) -> None:
        """Come out of the engine again, and forget what it produced."""

    def proven(self) -> None:
        """What was held back, and all that follows, is right."""

    def refused(self, error: Exception) -> None:
        """The slot is lost."""


class SlotKeeper(Protocol):
    """What a proof can have done with its slot."""

    def keep(self, proof: SlotProof) -> None:
        """The slot stays as it is until `succeed` or `fail`: those who ride may all leave before."""

    def doubt(self, record: AdapterRecord, error: Exception) -> None:
        """The first try went wrong, and nobody is on the slot any more."""

    async def reload(self, proof: SlotProof) -> None:
        """Clear the slot, read the adapter's file anew and load it."""

    def succeed(self, proof: SlotProof) -> None: ...

    def fail(self, proof: SlotProof, error: Exception) -> None:
        """The adapter loses its slot, and every reference on it is void."""

    async def bury(self, proof: SlotProof, error: Exception) -> None:
        """Clear what is left, and tell whom it concerns."""


class Phase(StrEnum):
    NEW = "not begun"
    PROBING = "the probe is in the engine"
    AGAIN = "it is loaded once more"
    PROVEN = "proven"
    FAILED = "failed"


class SlotProof:
    """One for each load; begun by whoever needs it first."""

    def __init__(self, record: AdapterRecord, slot: int, effects: Effects, keeper: SlotKeeper) -> None:
        self.record = record
        self.slot = slot
        self.phase = Phase.NEW
        self._effects = effects
        self._keeper = keeper
        self._riders: list[Rider] = []
        self._error: Exception = AdapterUnavailable("its load has not been proven")
        self._asked: asyncio.Task[Seen] | None = None
        self._story: asyncio.Task[None] | None = None

    @property
    def proven(self) -> bool:
        return self.phase is Phase.PROVEN

    @property
    def failed(self) -> bool:
        return self.phase is Phase.FAILED

    @property
    def under_way(self) -> bool:
        return self._story is not None and not self._story.done()

    def waive(self) -> None:
        """Take it for proven. Only for measuring what proofs cost."""
        self.phase = Phase.PROVEN

    def ride(self, rider: Rider) -> None:
        """Let a request onto the slot. Raises EngineFailed; it does not ride then."""
        if self.failed:
            rider.refused(self._error)
            return
        self._begin()
        if self.phase is not Phase.AGAIN:
            rider.enter()
        if self.proven:
            rider.proven()
        else:
            self._riders.append(rider)

    def leave(self, rider: Rider) -> None:
        """It has ended for another reason, or knows how the proof ended. Idempotent."""
        if rider in self._riders:
            self._riders.remove(rider)

    async def settled(self) -> None:
        """Returns once it is proven, alone if nobody rides. Raises AdapterFailed, AdapterUnavailable,
        EngineFailed; the slot is lost then."""
        if self.failed:
            raise self._error
        self._begin()
        if self._story is not None:
            await asyncio.shield(self._story)

    async def close(self) -> None:
        """Give it up where it stands."""
        tasks = [task for task in (self._story, self._asked) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        if self.phase is not Phase.NEW:
            return
        self.phase = Phase.PROBING
        self._keeper.keep(self)
        self._asked = self._effects.ask(self.slot)
        self._story = asyncio.create_task(self._prove(self._asked), name=f"proof of slot {self.slot}")
        self._story.add_done_callback(_look_at)

    async def _prove(self, asked: asyncio.Task[Seen]) -> None:
        try:
            await self._in_two_tries(asked)
        except Exception as error:
            self.phase, self._error = Phase.FAILED, error
            self._keeper.fail(self, error)
            for rider in self._take_riders():
                rider.refused(error)
            await self._keeper.bury(self, error)
            raise
        again, self.phase = self.phase is Phase.AGAIN, Phase.PROVEN
        self._keeper.succeed(self)
        for rider in self._take_riders():
            _let_go(rider, again)

    async def _in_two_tries(self, asked: asyncio.Task[Seen]) -> None:
        try:
            await self._effects.check(self.record, self.slot, asked)
        except Exception as doubt:
            self.phase = Phase.AGAIN
            for rider in self._riders:
                rider.withdraw()
            self._keeper.doubt(self.record, doubt)
            await self._once_more()

    async def _once_more(self) -> None:
        try:
            await self._keeper.reload(self)
            await self._effects.check(self.record, self.slot, self._effects.ask(self.slot))
        except (AdapterFailed, AdapterUnavailable, EngineFailed):
            raise
        except Exception as error:
            raise AdapterUnavailable(f"the load of {self.record.adapter_id} cannot be proven: {error}") from error

    def _take_riders(self) -> list[Rider]:
        riders, self._riders = self._riders, []
        return riders


def _let_go(rider: Rider, again: bool) -> None:
    try:
        if again:
            rider.enter()
    except EngineFailed as error:
        rider.refused(error)
    else:
        rider.proven()


def _look_at(story: asyncio.Task[None]) -> None:
    """Nobody may be waiting for it: those who ride are told."""
    if not story.cancelled():
        story.exception()
