"""Placement: listens, decides, and keeps what the bus says about owners and assignments true.

Level-triggered: every turn compares what should be stored with what is, and writes the difference. A
write that fails is made good by the next turn; a turn that finds nothing to do writes nothing.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from services.placement.assigning import Assigning
from services.placement.core import decide
from services.placement.core.decide import Facts
from services.placement.core.fleet import fleet_view, owners_view
from services.placement.core.heat import HeatPolicy
from services.placement.core.membership import MembershipPolicy, Standing
from services.placement.io.desk import Desk
from services.placement.io.heard import Heard
from services.placement.io.ledger import Ledger, Superseded
from services.placement.io.meters import Meters
from shared.bus.port import BusUnavailable
from shared.messages.operations import AskFleet, AskOwners, FleetView, Owners
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

TURN_S = 0.1
"""How soon a change is acted upon; what arrives within one turn is one change."""

_JUDGE_S = 1.0
"""How often the clock alone (a silence, the end of a grace) is looked at."""

_NEVER_S = float("-inf")

_log = get_logger(__name__)

M = TypeVar("M")


class PlacementPolicy(msgspec.Struct, frozen=True, kw_only=True):
    membership: MembershipPolicy = MembershipPolicy()
    owners: int = 2
    fill_s: float = 1.5
    refresh_s: float = 60.0
    """How often plans follow what replicas really hold and how busy adapters are, and what is stored is read anew."""
    heat: HeatPolicy = HeatPolicy()


class Placement:
    """A part of a service; `turn` is to be called every TURN_S, never twice at a time."""

    def __init__(self, clock: Clock, policy: PlacementPolicy, heard: Heard, desk: Desk, meters: Meters) -> None:
        self._clock = clock
        self._policy = policy
        self._heard = heard
        self._desk = desk
        self._meters = meters
        self._assigning = Assigning(clock, policy.heat, desk, meters)
        self._standings: dict[str, Standing] = {}
        self._epoch = 0
        self._filled_at_s = 0.0
        self._read_at_s = _NEVER_S
        self._judged_at_s = _NEVER_S
        self._superseded = ""

    async def start(self) -> None:
        """Hear everything, and claim the next epoch. Raises BusUnavailable; nothing was written then, and
        nothing is left running."""
        try:
            await self._listen()
        except BaseException:
            await self.stop()
            raise
        _log.info("placement listens", epoch=self._epoch, fill_s=self._policy.fill_s)

    async def stop(self) -> None:
        await self._desk.close()
        await self._heard.stop()

    def unready_reason(self) -> str | None:
        """For the probe: None while this placement acts."""
        if self._superseded:
            return self._superseded
        if not self._desk.connected:
            return "the bus cannot be reached"
        if self._judged_at_s == _NEVER_S:
            return "its view of the fleet has not filled yet"
        return None

    async def turn(self) -> None:
        """Act if something changed or a second has passed."""
        now_s = self._clock.now_s()
        if not self._desk.connected:
            self._filled_at_s = now_s + self._policy.fill_s
        if self._superseded or now_s < self._filled_at_s:
            return
        if not self._heard.changed and now_s - self._judged_at_s < _JUDGE_S:
            return
        self._heard.changed = False
        self._judged_at_s = now_s
        try:
            await self._reread(now_s)
            await self._reconcile(self._heard.facts())
        except BusUnavailable as error:
            self._heard.changed = True
            self._assigning.doubt()
            _log.warning("not everything could be written; the next turn tries again", error=error)
        except Superseded as error:
            await self._stop_acting(str(error))

    async def _listen(self) -> None:
        await self._heard.start()
        await self._desk.read()
        self._epoch = self._desk.newest_epoch() + 1
        self._heard.recall(self._desk.stored_memberships().values())
        self._assigning.recall()
        self._read_at_s = self._clock.now_s()
        self._filled_at_s = self._clock.now_s() + self._policy.fill_s
        await self._desk.open(self._fleet, self._owners, self._on_epoch)

    async def _reread(self, now_s: float) -> None:
        """Now and then believe nothing: what was deleted or changed by hand is then put right."""
        if now_s - self._read_at_s < self._policy.refresh_s:
            return
        await self._desk.read()
        self._read_at_s = now_s
        self._assigning.doubt()
        if self._desk.newest_epoch() > self._epoch:
            raise Superseded(self._successor(self._desk.newest_epoch()))

    async def _reconcile(self, facts: Facts) -> None:
        self._note(decide.judge_all(facts, self._policy.membership))
        for membership in decide.memberships(self._standings, self._desk.stored_memberships(), self._epoch):
            await self._write(self._desk.memberships, membership, membership.pool_id)
        stored_counts = self._desk.stored_owner_counts()
        for count in decide.owner_counts(facts, self._standings, stored_counts, self._policy.owners):
            await self._write(self._desk.owner_counts, count, count.pool_id)
        # Memberships come first: gateways rank from them at once, and they fence off an older placement.
        await self._assigning.follow(facts, self._standings, self._epoch, lambda: not self._superseded)

    async def _write(self, ledger: Ledger[M], value: M, *ids: str) -> None:
        if await ledger.write(value, *ids):
            self._meters.wrote(ledger.name)

    def _note(self, standings: dict[str, Standing]) -> None:
        """Keep the new judgement, and say what changed in it."""
        for change in decide.phase_changes(self._standings, standings):
            _log.info("a replica changed", **msgspec.structs.asdict(change))
        self._standings = standings
        self._meters.judged(standings)

    async def _on_epoch(self, epoch: int) -> None:
        if epoch > self._epoch:
            await self._stop_acting(self._successor(epoch))

    def _successor(self, epoch: int) -> str:
        return f"another placement has taken over with epoch {epoch}; this one has {self._epoch}"

    async def _stop_acting(self, reason: str) -> None:
        """For good: only a new start claims a new epoch. Questions go to the placement that acts."""
        if self._superseded:
            return
        self._superseded = reason
        _log.error("placement stops acting", reason=reason, epoch=self._epoch)
        await self.stop()

    def _fleet(self, question: AskFleet) -> FleetView:
        facts = self._heard.facts()
        return fleet_view(facts, decide.judge_all(facts, self._policy.membership), self._assigning.plans, self._epoch)

    def _owners(self, question: AskOwners) -> Owners:
        facts = self._heard.facts()
        standings = decide.judge_all(facts, self._policy.membership)
        return owners_view(facts, standings, self._desk.stored_owner_counts(), question)
