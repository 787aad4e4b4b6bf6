"""Placement: listens, decides, and keeps what the bus says about owners and assignments true.

Level-triggered: every turn compares what should be stored with what is, and writes the difference. A
write that fails is made good by the next turn; a turn that finds nothing to do writes nothing.

Of several placements the one that holds the lease writes and answers. The others decide as well, so that whichever
takes over goes on from where the fleet is.
"""

from __future__ import annotations

import asyncio

import msgspec

from services.placement.core.decide import Facts
from services.placement.core.fleet import fleet_view, owners_view
from services.placement.core.tick import Decision, Memory, TickPolicy, on_tick, standings_of
from services.placement.io.desk import Desk
from services.placement.io.heard import Heard
from services.placement.io.meters import Meters
from shared.bus.port import BusUnavailable
from shared.leadership.ledger import NotLeading, Superseded
from shared.messages.operations import AskFleet, AskOwners, FleetView, Owners
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

TURN_S = 0.1
"""How soon a change is acted upon; what arrives within one turn is one change."""

_JUDGE_S = 1.0
"""How often the clock alone (a silence, the end of a grace) is looked at."""

_LONG_PAIRS = 50_000
"""Adapters times replicas from which on a decision may take longer than others can wait."""

_NEVER_S = float("-inf")

_log = get_logger(__name__)


class PlacementPolicy(msgspec.Struct, frozen=True, kw_only=True):
    tick: TickPolicy = TickPolicy()
    fill_s: float = 1.5


class Placement:
    """A part of a service; `turn` is to be called every TURN_S, never twice at a time."""

    def __init__(self, clock: Clock, policy: PlacementPolicy, heard: Heard, desk: Desk, meters: Meters) -> None:
        self._clock = clock
        self._policy = policy
        self._heard = heard
        self._desk = desk
        self._meters = meters
        self._memory = Memory()
        self._epoch = 0
        """Of the lease under which this placement acts; 0: it stands by."""
        self._filled_at_s = 0.0
        self._read_at_s = _NEVER_S
        self._judged_at_s = _NEVER_S

    async def start(self) -> None:
        """Hear everything, and contend for the lease. Raises BusUnavailable; nothing was written then, and
        nothing is left running."""
        try:
            await self._listen()
        except BaseException:
            await self.stop()
            raise
        _log.info("placement listens", fill_s=self._policy.fill_s)

    async def stop(self) -> None:
        await self._desk.close()
        await self._heard.stop()

    def unready_reason(self) -> str | None:
        """For the probe: None while this placement acts or could."""
        if not self._desk.connected:
            return "the bus cannot be reached"
        if self._judged_at_s == _NEVER_S:
            return "its view of the fleet has not filled yet"
        return None

    def status(self) -> str:
        """For the probe, once it is ready."""
        return f"leads with epoch {self._epoch}" if self._epoch else "stands by"

    async def turn(self) -> None:
        """Act if something changed or a second has passed."""
        now_s = self._clock.now_s()
        if not self._desk.connected:
            self._filled_at_s = now_s + self._policy.fill_s
        if now_s < self._filled_at_s:
            return
        standing = self._desk.leader.standing
        epoch = standing.epoch if standing.leads else 0
        if epoch == self._epoch and not self._heard.changed and now_s - self._judged_at_s < _JUDGE_S:
            return
        self._heard.changed = False
        self._judged_at_s = now_s
        try:
            await self._follow(epoch)
            await self._reread(now_s)
            await self._reconcile(self._heard.facts())
        except (BusUnavailable, NotLeading) as error:
            self._try_again("not everything could be written; the next turn tries again", error)
        except Superseded as error:
            self._desk.leader.heed(error.epoch + 1)
            self._try_again("somebody else has written; this placement goes on with a higher epoch, or not", error)

    def _try_again(self, event: str, error: Exception) -> None:
        self._heard.changed = True
        self._memory = self._memory.doubting()
        _log.warning(event, error=error, epoch=self._epoch)

    async def _listen(self) -> None:
        await self._heard.start()
        await self._desk.read()
        self._heard.recall(self._desk.stored().memberships.values())
        self._read_at_s = self._clock.now_s()
        self._filled_at_s = self._clock.now_s() + self._policy.fill_s
        self._desk.leader.contend()

    async def _follow(self, epoch: int) -> None:
        """Begin to act with the epoch of the lease, or step back. A predecessor's writing is read first."""
        if epoch == self._epoch:
            return
        self._epoch, self._read_at_s = 0, _NEVER_S
        self._meters.leads(0)
        await self._desk.close()
        if epoch:
            await self._reread(self._clock.now_s())
            await self._desk.open(self._fleet, self._owners)
        self._epoch = epoch
        self._meters.leads(epoch)

    async def _reread(self, now_s: float) -> None:
        """Now and then believe nothing: what was deleted or changed by hand is then put right."""
        if now_s - self._read_at_s < self._policy.tick.refresh_s:
            return
        await self._desk.read()
        self._read_at_s = now_s
        self._memory = self._memory.doubting()

    async def _reconcile(self, facts: Facts) -> None:
        with self._meters.plan_s.time():
            decision = await self._decide(facts)
        self._note(decision)
        if not self._epoch:
            return
        await self._desk.carry_out(decision, self._epoch, self._meters.wrote)
        shards = decision.shards
        if shards.puts or shards.deletes:
            _log.info("assignments changed", written=len(shards.puts), deleted=len(shards.deletes))

    async def _decide(self, facts: Facts) -> Decision:
        """Beside the loop where it takes long: a thread's hand-over would be most of a small decision."""
        asked = self._memory, facts, self._desk.stored(), self._policy.tick, self._epoch
        if len(facts.adapters) * len(facts.seen) < _LONG_PAIRS:
            return on_tick(*asked)
        return await asyncio.to_thread(on_tick, *asked)

    def _note(self, decision: Decision) -> None:
        """Keep what this turn leaves for the next, and say what it changes."""
        self._memory = decision.memory
        for reason in decision.reasons if self._epoch else ():
            _log.info("placement changes", reason=reason)
        self._meters.judged(decision.memory.standings)
        self._meters.planned(decision.plans)
        self._meters.pooled(decision.memory.pools)

    def _fleet(self, question: AskFleet) -> FleetView:
        facts = self._heard.facts()
        standings = standings_of(self._memory, facts, self._policy.tick)
        return fleet_view(facts, standings, self._memory.plans, self._epoch)

    def _owners(self, question: AskOwners) -> Owners:
        facts = self._heard.facts()
        standings = standings_of(self._memory, facts, self._policy.tick)
        return owners_view(facts, standings, self._desk.stored().owner_counts, question)
