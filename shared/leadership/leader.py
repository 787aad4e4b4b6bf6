"""One process's part in a role of which only one may act: looks at the lease, renews it, takes it, gives it up."""

from __future__ import annotations

import asyncio
import logging

from shared.bus.port import BusUnavailable, RevisionConflict, StateStore
from shared.leadership import core
from shared.leadership.core import Entry, Memory, Self, Standing, Step
from shared.messages.desired import Lease
from shared.runtime.clock import Clock

TTL_S = 3.0
"""After a leader has died, another one acts within about 1.2 times this."""

LOOKS = 12
"""In one `ttl_s`."""

_ATTEMPTS = 2

_log = logging.getLogger(__name__)


class Leader:
    """A part of a service; `turn` is to be called every `turn_s`, never twice at a time and whatever else the
    service is busy with.

    `may_act` is to be asked right before every write in the role, with no await in between; the write itself
    carries that epoch, so that one which was under way while the process was paused is ignored.
    """

    def __init__(self, store: StateStore[Lease], clock: Clock, *, role: str, holder: str, ttl_s: float = TTL_S) -> None:
        self.turn_s = ttl_s / LOOKS
        self._store = store
        self._clock = clock
        self._me = Self(role=role, holder=holder, ttl_s=ttl_s)
        self._memory = Memory()
        self._given_up = False
        self._said: Standing | None = None

    async def start(self) -> None:
        """Nothing happens before the first turn."""

    async def stop(self) -> None:
        """Give the lease up, for good. If the bus is away it runs out by itself."""
        self._given_up = True
        try:
            async with asyncio.timeout(self._patience_s):
                surrender = core.surrender(self._me, self._memory, await self._read())
                self._memory = surrender.memory
                if surrender.put is not None:
                    await self._put(surrender)
        except (BusUnavailable, RevisionConflict, TimeoutError) as error:
            _log.warning("the lease of %s was not given up: %s", self._me.role, error)
        finally:
            self._memory = core.lost(self._memory, "has stopped")

    def contend(self) -> None:
        """Take the lease from now on when it is free: this process knows enough to act."""
        self._memory = core.contending(self._memory)

    def heed(self, epoch: int) -> None:
        """An epoch was found on something written in this role. Never lead with a lower one."""
        self._memory = core.heeding(self._memory, epoch)

    def may_act(self, epoch: int) -> bool:
        """Whether this process may write in the role with that epoch at this moment, by its own clock."""
        return self._memory.epoch == epoch and core.may_act(self._me, self._memory, self._clock.now_s())

    @property
    def standing(self) -> Standing:
        return core.standing(self._me, self._memory, self._clock.now_s())

    async def turn(self) -> Standing:
        """Look at the lease and do what is due. A bus that is away is waited for: nothing is raised."""
        if not self._given_up:
            try:
                async with asyncio.timeout(self._patience_s):
                    await self._look()
            except (BusUnavailable, TimeoutError):
                self._memory = core.blind(self._memory)
        self._say(self.standing)
        return self.standing

    @property
    def _patience_s(self) -> float:
        """An answer that takes longer comes too late for a renewal: ask again."""
        return self._me.ttl_s / core.RENEWALS

    async def _look(self) -> None:
        for _ in range(_ATTEMPTS):
            entry = await self._read()
            step = core.step(self._me, self._memory, entry, self._clock.now_s())
            self._memory = step.memory
            if step.put is None:
                return
            try:
                await self._put(step)
            except RevisionConflict:
                self._memory = core.lost(self._memory, "somebody else wrote the lease")
            else:
                self._memory = core.stored(self._memory)
                return

    async def _read(self) -> Entry | None:
        found = await self._store.get(self._me.role)
        return None if found is None or found.value is None else Entry(lease=found.value, revision=found.revision)

    async def _put(self, step: Step) -> None:
        assert step.put is not None
        await self._store.put(step.put, self._me.role, expected_revision=step.expected_revision)

    def _say(self, standing: Standing) -> None:
        before, self._said = self._said, standing
        if before is None or (before.leads, before.epoch) != (standing.leads, standing.epoch):
            _log.info("%s %s: %s", self._me.role, "leads" if standing.leads else "stands by", standing.reason)
