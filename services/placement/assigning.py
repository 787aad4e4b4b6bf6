"""Who holds what, written down: plans anew when anything that a plan depends on has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from services.placement.core import decide, heat
from services.placement.core.decide import Facts, Intent, Stored
from services.placement.core.heat import HeatPolicy, Heats
from services.placement.core.membership import Standing, owners_weights
from services.placement.core.owners import Rankings
from services.placement.core.plan import ReplicaPlan
from services.placement.core.shards import differences
from services.placement.io.desk import Desk
from services.placement.io.meters import Meters
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_RANKED_AT_ONCE = 250
"""Adapters ranked before others get a turn: some 30 ms for 100 replicas."""

_log = get_logger(__name__)


class Assigning:
    """`plans` are those of the last turn that planned, by replica."""

    def __init__(self, clock: Clock, policy: HeatPolicy, desk: Desk, meters: Meters) -> None:
        self.plans: Mapping[str, ReplicaPlan] = {}
        self._clock = clock
        self._policy = policy
        self._desk = desk
        self._meters = meters
        self._rankings: dict[str, Rankings] = {}
        self._heats: Heats = {}
        self._planned_for: object = None

    def recall(self) -> None:
        """How busy adapters were for an earlier placement."""
        self._heats = heat.recall(self._desk.stored_shards().values(), self._policy)

    def doubt(self) -> None:
        """Plan anew with the next `follow`, whatever has changed or not."""
        self._planned_for = None

    async def follow(
        self, facts: Facts, standings: Mapping[str, Standing], epoch: int, acts: Callable[[], bool]
    ) -> None:
        """Write what differs from the plan for these facts; `acts` says whether this placement still may.
        Raises BusUnavailable, Superseded: what was not written then is, with the next `follow` after a `doubt`."""
        self._reheat(facts)
        basis = facts.adapters, {name: (s.phase, s.member) for name, s in standings.items()}
        if basis == self._planned_for:
            return
        with self._meters.plan_s.time():
            await self._rank(facts, standings)
            intent, stored = self._intent(facts, standings, epoch)
        changes = differences(stored.shards, intent.shards)
        for key, shard in changes.puts:
            if await self._desk.shards.write(shard, *key):
                self._meters.wrote(self._desk.shards.name)
        for key in changes.deletes:
            if not acts():  # a delete is not compared with a revision: nothing else would hold it back
                return
            await self._desk.shards.remove(*key)
        self.plans = intent.plans
        self._meters.planned(intent.plans)
        self._planned_for = basis
        if changes.puts or changes.deletes:
            _log.info("assignments changed", written=len(changes.puts), deleted=len(changes.deletes))

    def _reheat(self, facts: Facts) -> None:
        """With the plan that a refresh makes anyway; at once for a pool of which nothing was known."""
        if self._planned_for is None or facts.traffic.keys() - self._heats.keys():
            self._heats = heat.fold(self._heats, facts.traffic.values(), self._policy)
            self._planned_for = None

    def _intent(self, facts: Facts, standings: Mapping[str, Standing], epoch: int) -> tuple[Intent, Stored]:
        stored = Stored(
            owner_counts=self._desk.stored_owner_counts(),
            shards=self._desk.stored_shards(),
            heats=heat.by_adapter(self._heats),
        )
        return decide.intend(facts, standings, stored, self._rankings, epoch), stored

    async def _rank(self, facts: Facts, standings: Mapping[str, Standing]) -> None:
        """Rank what is not ranked yet, in portions that leave the loop to others in between."""
        ids_by_pool = decide.adapter_ids_by_pool(facts.adapters.values())
        rankings: dict[str, Rankings] = {}
        for pool_id in sorted({standing.pool_id for standing in standings.values()}):
            weights = owners_weights(standings, pool_id)
            known = self._rankings.get(pool_id, Rankings(weights)).under(weights)
            while known.fill(ids_by_pool.get(pool_id, []), _RANKED_AT_ONCE):
                await self._clock.sleep_s(0)
            rankings[pool_id] = known
        self._rankings = rankings
