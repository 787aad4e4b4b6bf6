"""One tick after another: a value in, a value out, and only what a change concerns is written."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.placement.core.decide import Facts, Stored
from services.placement.core.demand import Demand, fold
from services.placement.core.membership import observe
from services.placement.core.tick import Decision, Memory, TickPolicy, after, on_tick
from shared.contracts.catalog import ASSIGNMENT, MEMBERSHIP, OWNER_COUNT
from shared.contracts.codec import decode, encode
from shared.hashing import rank
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from shared.messages.desired import AdapterRecord
from tests.simulation.speakers import POOL, adapter, report

POLICY = TickPolicy()
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


def test_a_replica_whose_rank_limit_changes_owns_what_it_can_apply() -> None:
    def heard(limit: int, now_s: float) -> Facts:
        known = facts(now_s, names(4))
        seen = {**known.seen, "r0": observe(None, report("r0", rank_limit=limit), now_s)}
        return msgspec.structs.replace(known, seen=seen, rank_classes={})

    before = on_tick(Memory(), heard(8, 1.0), Stored(), POLICY, 1)
    stored = after(Stored(), before)
    assert all("r0" not in held for held in holders(stored).values())
    now = on_tick(before.memory, heard(16, 2.0), stored, POLICY, 1)
    assert sum("r0" in held for held in holders(after(stored, now)).values()) > 30


def test_owners_that_an_earlier_placement_gave_a_hot_adapter_stay_for_a_while() -> None:
    activity = Demand()
    for second in range(1, 40):
        seen = {"a3": AdapterActivity(requests=8, finished=8, tokens=2_000)}
        pools = {POOL: PoolActivity(requests=8, tokens=2_000, adapters=seen)}
        said = GatewayActivity(gateway_id="g", sequence=second, interval_s=1.0, pools=pools)
        activity = fold(activity, said, float(second), POLICY.demand)
    hot = on_tick(Memory(), facts(40.0, names(6), activity), Stored(), POLICY, 1)
    assert hot.owner_counts[0].exceptions == {"a3": 5}
    stored = read_back(after(Stored(), hot))
    heir = on_tick(Memory(), facts(1.0, names(6)), stored, POLICY, 2)
    assert heir.owner_counts[0].exceptions == {"a3": 5}
    later = on_tick(heir.memory, facts(61.0, names(6)), after(stored, heir), POLICY, 2)
    assert later.owner_counts[0].exceptions == {"a3": 4}
    assert any(reason.endswith("a3 has 4 owners instead of 5, for its traffic") for reason in later.reasons)


def test_an_adapter_that_is_edited_is_planned_again_where_it_is_and_nowhere_else() -> None:
    decision, stored = first()
    edited: dict[object, AdapterRecord] = {**RECORDS}
    record = adapter("a5", size_bytes=7)
    edited[record.key] = record
    known = msgspec.structs.replace(facts(2.0, names(6)), adapters=edited)
    again = on_tick(decision.memory, known, stored, POLICY, 1)
    replanned = {name for name, plan in again.plans.items() if plan is not decision.plans[name]}
    assert replanned == holders(stored)["a5"]
