"""One tick after another: a value in, a value out, and only what a change concerns is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pytest

from services.placement.core.decide import Facts, Stored
from services.placement.core.demand import Demand, fold
from services.placement.core.membership import observe
from services.placement.core.needs import NeedPolicy
from services.placement.core.pressure import Lift, Thrash
from services.placement.core.tick import Decision, Memory, TickPolicy, after, on_tick
from shared.contracts.catalog import ASSIGNMENT, MEMBERSHIP, OWNER_COUNT
from shared.contracts.codec import decode, encode
from shared.hashing import rank
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from shared.messages.desired import AdapterRecord, AssignmentShard, PoolPressure
from tests.simulation.speakers import POOL, adapter, report

POLICY = TickPolicy(need=NeedPolicy(target_share=0.7))
RECORDS = {record.key: record for record in (adapter(f"a{at}") for at in range(120))}


def facts(now_s: float, replicas: Iterable[str], activity: Demand | None = None) -> Facts:
    return Facts(
        now_s=now_s,
        real_s=now_s,
        adapters=RECORDS,
        rank_classes={POOL: 16},
        seen={name: observe(None, report(name), now_s) for name in replicas},
        drained=frozenset(),
        held={},
        activity=activity or Demand(),
    )


def names(count: int) -> list[str]:
    return [f"r{at}" for at in range(count)]


def heard(now_s: float, says: Mapping[str, Mapping[str, float]]) -> Facts:
    """What replicas say besides the usual, by name."""
    seen = {name: observe(None, report(name, **changes), now_s) for name, changes in says.items()}
    return msgspec.structs.replace(facts(now_s, ()), seen=seen)


def first(count: int = 6) -> tuple[Decision, Stored]:
    decision = on_tick(Memory(), facts(1.0, names(count)), Stored(), POLICY, 1)
    return decision, after(Stored(), decision)


def read_back(stored: Stored) -> Stored:
    """As another placement finds it on the bus."""
    return Stored(
        memberships={key: decode(MEMBERSHIP, encode(MEMBERSHIP, each)) for key, each in stored.memberships.items()},
        owner_counts={key: decode(OWNER_COUNT, encode(OWNER_COUNT, each)) for key, each in stored.owner_counts.items()},
        shards={key: decode(ASSIGNMENT, encode(ASSIGNMENT, each)) for key, each in stored.shards.items()},
    )


def asked_for(seconds: int, adapter_id: str, *, requests: int, tokens: int) -> Demand:
    """So many each second."""
    seen = {adapter_id: AdapterActivity(requests=requests, finished=requests, tokens=tokens)}
    pools = {POOL: PoolActivity(requests=requests, tokens=tokens, adapters=seen)}
    demand = Demand()
    for second in range(1, seconds + 1):
        said = GatewayActivity(gateway_id="g", sequence=second, interval_s=1.0, pools=pools)
        demand = fold(demand, said, float(second), POLICY.demand)
    return demand


def tier(stored: Stored, replica_id: str, adapter_id: str) -> str:
    return next(one.tier for one in stored.shards[replica_id, "0"].adapters if one.adapter_id == adapter_id)


def swapped(shard: AssignmentShard, adapter_id: str) -> AssignmentShard:
    """With this adapter in RAM instead of a slot, or the other way round."""
    other = {"gpu": "ram", "ram": "gpu"}
    adapters = (
        msgspec.structs.replace(one, tier=other[one.tier]) if one.adapter_id == adapter_id else one
        for one in shard.adapters
    )
    return msgspec.structs.replace(shard, adapters=tuple(adapters))


def hottest(decision: Decision) -> int:
    return max(each.heat for plan in decision.plans.values() for each in plan.adapters)


def holders(stored: Stored) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for shard in stored.shards.values():
        for each in shard.adapters:
            found.setdefault(each.adapter_id, set()).add(shard.replica_id)
    return found


def test_a_tick_in_which_nothing_has_changed_writes_nothing_and_plans_nothing() -> None:
    decision, stored = first()
    again = on_tick(decision.memory, facts(2.0, names(6)), stored, POLICY, 1)
    assert (again.shards.puts, again.shards.deletes, again.reasons) == ((), (), ())
    assert after(stored, again) == stored
    assert all(again.plans[name] is plan for name, plan in decision.plans.items())


def test_only_shards_of_those_concerned_are_written_when_a_replica_is_gone() -> None:
    decision, stored = first(20)
    left = on_tick(decision.memory, facts(2.0, names(19)), stored, POLICY, 1)
    lost = {each.adapter_id for each in stored.shards["r19", "0"].adapters}
    assert left.shards.deletes == (("r19", "0"),)
    before, now = holders(stored), holders(after(stored, left))
    gained = {name for adapter_id in lost for name in now[adapter_id] - before[adapter_id]}
    slots_moved = {key[0] for key, _ in left.shards.puts} - gained
    assert gained <= {key[0] for key, _ in left.shards.puts}
    assert len(slots_moved) < 10, "a first owner that is gone leaves its slot to the next one"
    assert {adapter_id for adapter_id in before if before[adapter_id] != now[adapter_id]} == lost


def test_what_was_not_written_is_written_with_the_next_tick() -> None:
    decision, _ = first()
    again = on_tick(decision.memory, facts(2.0, names(6)), Stored(), POLICY, 1)
    assert again.shards.puts == decision.shards.puts


def test_another_placement_goes_on_from_what_is_written() -> None:
    """The first was about to hand adapters to a newcomer, a few at a time: so does the second."""
    policy = msgspec.structs.replace(POLICY, churn=msgspec.structs.replace(POLICY.churn, moves=5))
    decision, stored = first()
    joined = on_tick(decision.memory, facts(2.0, names(7)), stored, policy, 1)
    stored = after(stored, joined)
    assert len(stored.shards["r6", "0"].adapters) == 5
    taken = on_tick(Memory(), facts(2.1, names(7)), read_back(stored), policy, 2)
    stored = after(stored, taken)
    assert len(stored.shards["r6", "0"].adapters) == 10
    assert {shard.epoch for shard in stored.shards.values()} == {2}
    assert {each.epoch for each in (*taken.memberships, *taken.owner_counts)} == {2}


def test_one_that_stood_by_goes_on_from_what_is_written_and_not_from_what_it_thought() -> None:
    hasty = msgspec.structs.replace(POLICY, churn=msgspec.structs.replace(POLICY.churn, moves=1_000))
    careful = msgspec.structs.replace(POLICY, churn=msgspec.structs.replace(POLICY.churn, moves=5))
    decision, stored = first()
    thought = on_tick(Memory(), facts(1.0, names(6)), stored, hasty, 0)
    thought = on_tick(thought.memory, facts(2.0, names(7)), stored, hasty, 0)
    assert len(thought.plans["r6"].adapters) > 20
    led = on_tick(thought.memory, facts(3.0, names(7)), stored, careful, 2)
    assert len(led.plans["r6"].adapters) == 5
    assert decision.memory.epoch == 1


def test_a_lift_ends_with_its_adapter() -> None:
    decision, stored = first()
    lifts = {name: Lift(3, 1_000.0) for name in ("a3", "gone")}
    pool = msgspec.structs.replace(decision.memory.pools[POOL], thrash=Thrash(lifts=lifts))
    memory = msgspec.structs.replace(decision.memory, pools={POOL: pool})
    assert on_tick(memory, facts(2.0, names(6)), stored, POLICY, 1).owner_counts[0].exceptions == {"a3": 3}


def test_an_owner_far_down_the_ranking_is_replaced_as_well() -> None:
    decision, stored = first(12)
    counts = {POOL: msgspec.structs.replace(stored.owner_counts[POOL], exceptions={"a3": 8})}
    given = msgspec.structs.replace(stored, owner_counts=counts)
    hot = on_tick(Memory(), facts(2.0, names(12)), given, POLICY, 2)
    stored = after(given, hot)
    ranking = rank("a3", dict.fromkeys(names(12), 1.0))
    assert holders(stored)["a3"] == set(ranking[:8])
    left = on_tick(hot.memory, facts(3.0, set(names(12)) - {ranking[7]}), stored, POLICY, 2)
    assert holders(after(stored, left))["a3"] == {*ranking[:7], ranking[8]}
    assert decision.memory.pools[POOL].counts == {}


@pytest.mark.parametrize("others", [16, 8])
def test_a_replica_whose_rank_limit_changes_owns_what_it_can_apply(others: int) -> None:
    """Also if other replicas have each of the limits before and after."""

    def limited(limit: int, now_s: float) -> Facts:
        limits = {"r0": limit, "r1": others, "r2": 16, "r3": 16}
        known = heard(now_s, {name: {"rank_limit": each} for name, each in limits.items()})
        return msgspec.structs.replace(known, rank_classes={})

    before = on_tick(Memory(), limited(8, 1.0), Stored(), POLICY, 1)
    stored = after(Stored(), before)
    assert all("r0" not in held for held in holders(stored).values())
    now = on_tick(before.memory, limited(16, 2.0), stored, POLICY, 1)
    assert sum("r0" in held for held in holders(after(stored, now)).values()) > 30


def test_a_replica_that_drains_no_more_keeps_what_it_holds() -> None:
    policy = msgspec.structs.replace(POLICY, churn=msgspec.structs.replace(POLICY.churn, moves=5))
    decision, stored = first(3)
    had = {one.adapter_id: one.tier for one in stored.shards["r1", "0"].adapters}
    held = {"r1": {record.key: had[record.adapter_id] for record in RECORDS.values() if record.adapter_id in had}}
    for now_s, drained in ((2.0, frozenset({"r1"})), (3.0, frozenset[str]())):
        known = msgspec.structs.replace(facts(now_s, names(3)), drained=drained, held=held)
        decision = on_tick(decision.memory, known, stored, policy, 1)
        stored = after(stored, decision)
        assert {one.adapter_id for one in stored.shards["r1", "0"].adapters} == had.keys()
    assert {len(each) for each in holders(stored).values()} == {2}


def test_what_a_lost_replica_held_is_held_again_at_once() -> None:
    policy = msgspec.structs.replace(POLICY, churn=msgspec.structs.replace(POLICY.churn, moves=1))
    decision, stored = first(4)
    left = on_tick(decision.memory, facts(2.0, names(3)), stored, policy, 1)
    assert {len(each) for each in holders(after(stored, left)).values()} == {2}
    assert left.memory.pools[POOL].late == frozenset()


def test_a_pool_of_which_no_replica_is_left_wishes_for_none() -> None:
    wish = PoolPressure(pool_id=POOL, replicas=6, reason="it was too small", at_s=0.5, epoch=1)
    stored = Stored(pressures={POOL: wish})
    decision = on_tick(Memory(), facts(1.0, ()), stored, POLICY, 2)
    (eased,) = decision.pressures
    assert (eased.replicas, eased.epoch, eased.at_s) == (0, 2, 1.0)
    stored = after(stored, decision)
    again = on_tick(decision.memory, facts(2.0, ()), stored, POLICY, 2)
    assert after(stored, again).pressures == stored.pressures, "it is said once"


def test_replicas_that_evict_by_fits_and_starts_do_not_have_everything_planned_each_second() -> None:
    decision, stored = first()
    plans = 0
    for second in range(2, 62):
        evicting = {name: 0.0 if (second + at) % 6 == 0 else 100.0 for at, name in enumerate(names(6))}
        known = heard(float(second), {name: {"evictions_per_min": rate} for name, rate in evicting.items()})
        decision = on_tick(decision.memory, known, stored, POLICY, 1)
        plans += decision.memory.planned_at_s == second
        stored = after(stored, decision)
    assert 1 < plans <= 60 / POLICY.thrash.for_s


def test_slots_of_a_replica_that_is_to_own_nothing_help_nobody() -> None:
    """Six busy adapters and twelve slots, but eight of these are an operator's who wants no adapters there."""
    says: dict[str, dict[str, float]] = {
        "r0": {"weight": 0.0, "slots": 8},
        "r1": {"slots": 2, "evictions_per_min": 300.0},
        "r2": {"slots": 2, "evictions_per_min": 300.0},
    }
    busy = {f"a{at}": AdapterActivity(requests=1, finished=1, tokens=10) for at in range(6)}
    activity, decision, stored = Demand(), None, Stored()
    for second in range(1, 90):
        pools = {POOL: PoolActivity(requests=6, tokens=60, adapters=busy)}
        said = GatewayActivity(gateway_id="g", sequence=second, interval_s=1.0, pools=pools)
        activity = fold(activity, said, float(second), POLICY.demand)
        known = msgspec.structs.replace(heard(float(second), says), activity=activity)
        decision = on_tick(decision.memory if decision else Memory(), known, stored, POLICY, 1)
        stored = after(stored, decision)
    assert stored.pressures[POOL].replicas == 3


def test_owners_that_an_earlier_placement_gave_a_hot_adapter_stay_for_a_while_if_it_stays() -> None:
    activity = asked_for(39, "a3", requests=8, tokens=2_000)
    hot = on_tick(Memory(), facts(40.0, names(6), activity), Stored(), POLICY, 1)
    assert hot.owner_counts[0].exceptions == {"a3": 6}
    stored = read_back(after(Stored(), hot))
    others = {key: record for key, record in RECORDS.items() if record.adapter_id != "a3"}
    retired = msgspec.structs.replace(facts(40.1, names(6), activity), adapters=others)
    assert on_tick(hot.memory, retired, after(Stored(), hot), POLICY, 1).owner_counts[0].exceptions == {}
    heir = on_tick(Memory(), facts(1.0, names(6)), stored, POLICY, 2)
    assert heir.owner_counts[0].exceptions == {"a3": 6}
    later = on_tick(heir.memory, facts(181.0, names(6)), after(stored, heir), POLICY, 2)
    assert later.owner_counts[0].exceptions == {"a3": 4}
    assert any(reason.endswith("a3 has 4 owners instead of 6, for its traffic") for reason in later.reasons)


def test_a_customer_that_was_hot_for_a_moment_and_stays_busy_is_as_hot_as_it_is() -> None:
    peak, usual = (
        asked_for(39, "a3", requests=requests, tokens=tokens) for requests, tokens in ((60, 2_000), (3, 1_000))
    )
    decision = on_tick(Memory(), facts(40.0, names(6), peak), Stored(), POLICY, 1)
    heats = [hottest(decision)]
    stored = after(Stored(), decision)
    for now_s in range(50, 1_000, 10):
        known = msgspec.structs.replace(facts(float(now_s), names(6), usual), real_s=40.0)
        decision = on_tick(decision.memory, known, stored, POLICY, 1)
        stored = after(stored, decision)
        heats.append(hottest(decision))
    assert decision.owner_counts[0].exceptions == {"a3": 3}
    assert (heats[0], heats[-1]) == (13, 9), "60 requests a second, and 3"


def test_a_slot_that_an_earlier_placement_gave_stays_where_it_is() -> None:
    """The first owner has a free slot again, and the second one has the adapter in its own."""
    activity = asked_for(39, "a3", requests=1, tokens=100)
    decision = on_tick(Memory(), facts(40.0, names(6), activity), Stored(), POLICY, 1)
    stored = after(Stored(), decision)
    one, other = rank("a3", dict.fromkeys(names(6), 1.0))[:2]
    assert (tier(stored, one, "a3"), tier(stored, other, "a3")) == ("gpu", "ram")
    shards = {key: swapped(shard, "a3") if key[0] in (one, other) else shard for key, shard in stored.shards.items()}
    heir = on_tick(Memory(), facts(40.1, names(6), activity), msgspec.structs.replace(stored, shards=shards), POLICY, 2)
    stored = after(stored, heir)
    assert (tier(stored, one, "a3"), tier(stored, other, "a3")) == ("ram", "gpu")


def test_an_adapter_that_is_edited_is_planned_again_where_it_is_and_nowhere_else() -> None:
    decision, stored = first()
    edited: dict[object, AdapterRecord] = {**RECORDS}
    record = adapter("a5", size_bytes=7)
    edited[record.key] = record
    known = msgspec.structs.replace(facts(2.0, names(6)), adapters=edited)
    again = on_tick(decision.memory, known, stored, POLICY, 1)
    replanned = {name for name, plan in again.plans.items() if plan is not decision.plans[name]}
    assert replanned == holders(stored)["a5"]
