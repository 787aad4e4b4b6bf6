"""The turns of all pools, each with what it depends on."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.placement.core import assigning, needs, pool, rates, turn
from services.placement.core.catalog import Catalog
from services.placement.core.decide import Facts, Stored
from services.placement.core.demand import DemandPolicy
from services.placement.core.heat import Heats
from services.placement.core.membership import Seen, Standing
from services.placement.core.needs import Needs
from services.placement.core.pool import PoolMemory, PoolNow, PoolPolicy, Recalled
from services.placement.core.pressure import Thrash
from services.placement.core.rates import Only
from shared.messages.desired import OwnerCount


class Now(msgspec.Struct, frozen=True):
    """`is_due`: every plan is to be made again, whatever has changed."""

    facts: Facts
    standings: Mapping[str, Standing]
    records: Catalog
    heats: Heats
    is_due: bool


def turned(
    memories: Mapping[str, PoolMemory], now: Now, stored: Stored, policy: PoolPolicy, demand: DemandPolicy
) -> dict[str, PoolMemory]:
    """Every pool in sight after its turn. One that is new goes on from what is stored of it."""
    recalled: Mapping[str, Recalled] | None = None
    after = {}
    for pool_id in sorted({standing.pool_id for standing in now.standings.values()}):
        before = memories.get(pool_id)
        if before is None:
            recalled = assigning.recalled(stored.shards.values()) if recalled is None else recalled
            before = _beginning(recalled.get(pool_id, Recalled()), pool_id, now.facts.now_s, stored, policy)
        after[pool_id] = turn.turn(before, _of_pool(pool_id, now, policy, demand, before.needs), policy)
    return after


def _beginning(recalled: Recalled, pool_id: str, now_s: float, stored: Stored, policy: PoolPolicy) -> PoolMemory:
    count = stored.owner_counts.get(pool_id, OwnerCount(pool_id=pool_id))
    thrash = Thrash(pressure=stored.pressures.get(pool_id), justified_at_s=now_s)
    return pool.beginning(policy, recalled, needs.recall(count.exceptions, now_s), thrash)


def _of_pool(pool_id: str, now: Now, policy: PoolPolicy, demand: DemandPolicy, known: Needs) -> PoolNow:
    facts = now.facts
    members = {s.replica_id: s.member for s in now.standings.values() if s.pool_id == pool_id and s.owns}
    heats = now.heats.get(pool_id)
    share = needs.share_tokens_per_s(members, facts.seen, policy.need)
    return PoolNow(
        pool_id=pool_id,
        now_s=facts.now_s,
        records=now.records.pools.get(pool_id, {}),
        members=members,
        held=facts.held,
        heats=heats.classes if heats else {},
        rates=rates.asked(facts.activity, pool_id, facts.real_s, demand, Only(share, known.keys())),
        share=share,
        evictions_per_min={name: _evictions_per_min(facts.seen[name]) for name in members},
        anew=now.is_due,
    )


def _evictions_per_min(seen: Seen) -> float:
    return seen.report.evictions_per_min if seen.report else 0.0
