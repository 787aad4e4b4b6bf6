"""From a need to a wish, and from a wish to who comes and who goes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.autoscaler.core.load import PoolLoad
from services.autoscaler.core.memory import PoolDecision, PoolMemory, remembered
from services.autoscaler.core.policy import DrainPolicy, FloorPolicy, PacePolicy, ScalePolicy
from tests.unit.autoscaler.pools import asked, at, pool, replica, replicas, wants

QUICK = ScalePolicy(pace=PacePolicy(down_hold_s=8.0, down_step_s=1.0, down_share=1.0))


def for_seconds(
    seconds: int, load: PoolLoad, memory: PoolMemory, policy: ScalePolicy = QUICK, begin: int = 0
) -> PoolDecision:
    """The last of so many decisions about a load that stays as it is."""
    decision = at(float(begin), load, memory, policy)
    for second in range(begin + 1, begin + seconds):
        decision = at(float(second), load, decision.memory, policy)
    return decision


def lowered(load: PoolLoad, desired: int) -> PoolDecision:
    """Once fewer replicas have been enough for long."""
    return for_seconds(30, load, wants(desired))


def test_what_is_there_at_the_beginning_is_what_is_wanted() -> None:
    first = at(0.0, pool(replicas("r1", "r2")), PoolMemory())
    assert (first.desired, first.exist, first.reason) == (2, 2, "2 replicas were there when the autoscaler began")


def test_demand_is_believed_at_once_also_while_replicas_start() -> None:
    one = at(0.0, pool(replicas("r1"), demand=asked(2.5)), wants(1))
    assert (one.desired, one.exist, one.start) == (3, 3, 2)
    load = pool(replicas("r1"), existing=frozenset({"r1", "n1", "n2"}), demand=asked(4.5))
    more = at(1.0, load, one.memory)
    assert (more.desired, more.pending, more.exist, more.start) == (5, 2, 5, 2)


def test_c73_a_symptom_is_not_believed_while_replicas_start_nor_until_they_have_shown_what_they_do() -> None:
    pressed = replicas("r1", tokens_in_flight=200_000)
    one = at(0.0, pool(pressed), wants(1))
    assert one.desired == 2
    waiting = at(60.0, pool(pressed, existing=frozenset({"r1", "n1"})), one.memory)
    assert (waiting.desired, waiting.start) == (2, 0)
    assert waiting.reason.endswith("; 1 replicas are still starting")
    both = pool({**pressed, **replicas("n1", tokens_in_flight=200_000)})
    settling = at(70.0, both, waiting.memory)
    assert (settling.desired, settling.reason.rpartition("; ")[2]) == (
        2, "new replicas have not yet shown what they do",
    )  # fmt: skip
    assert at(90.0, both, settling.memory).desired == 4


def test_a_filled_kv_pool_scales_up_with_that_reason_and_a_silent_one_does_not_fool_it() -> None:
    full = replicas("r1", kv_used_tokens=62_000, kv_total_tokens=64_000)
    decision = for_seconds(3, pool(full, demand=asked(0.5)), wants(1))
    assert (decision.desired, decision.start) == (2, 1)
    assert decision.reason == "97 % of the KV cache is in use, at 80 % a replica"
    for figures in ({}, {"kv_used_tokens": 62_000}):
        silent = for_seconds(3, pool(replicas("r1", **figures), demand=asked(0.5)), wants(1))
        assert silent.desired == 1


def test_a_pool_whose_replicas_have_never_come_up_for_weeks_is_still_tried() -> None:
    memory = wants(1, failed_starts=2_000, waiting={"r1": 0.0})
    decision = at(200.0, pool({}, existing=frozenset({"r1"})), memory)
    assert (decision.remove, decision.memory.retry_at_s) == (("r1",), 2_000.0)


def test_the_order_in_which_replicas_go_is_that_of_what_their_loss_moves() -> None:
    known = {
        "r1": replica("r1", weight=0.5, tokens_in_flight=900),
        "r2": replica("r2", weight=0.5, tokens_in_flight=100),
        "r3": replica("r3", weight=1.0, tokens_in_flight=0),
    }
    assert lowered(pool(known, demand=asked(1.5)), 3).drain == ("r2",)
    assert lowered(pool(known, demand=asked(0.5)), 3).drain == ("r1", "r2")


def test_what_is_not_ready_yet_goes_first_and_needs_no_drain() -> None:
    load = pool({**replicas("r1"), "r2": replica("r2", ready=False)}, demand=asked(0.5))
    decision = lowered(load, 2)
    assert (decision.desired, decision.drain, decision.remove) == (1, (), ("r2",))


def test_a_drained_replica_goes_once_it_is_empty() -> None:
    policy = msgspec.structs.replace(QUICK, drain=DrainPolicy(settle_s=2.0))
    busy = {**replicas("r1"), "r2": replica("r2", draining=True, running=1)}
    memory = wants(1, drains={"r2": 0.0})
    assert at(100.0, pool(busy), memory, policy).remove == ()
    empty = {**busy, "r2": replica("r2", draining=True)}
    assert at(1.0, pool(empty), memory, policy).remove == ()
    gone = at(3.0, pool(empty), memory, policy)
    assert (gone.remove, gone.drain, gone.exist, gone.desired) == (("r2",), ("r2",), 1, 1)


def test_the_drain_deadline_ends_the_longest_request() -> None:
    busy = {**replicas("r1"), "r2": replica("r2", draining=True, running=1)}
    assert at(599.0, pool(busy), wants(1, drains={"r2": 0.0})).remove == ()
    assert at(600.0, pool(busy), wants(1, drains={"r2": 0.0})).remove == ("r2",)


def test_one_that_drains_and_was_not_heard_since_a_restart_is_given_the_time_to_be_heard() -> None:
    load = pool(replicas("r1"), existing=frozenset({"r1", "r2"}))
    memory = remembered(1, {"r2": 0.0}, 0.0)
    assert at(20.0, load, memory).remove == ()
    assert at(31.0, load, memory).remove == ("r2",)


def test_whoever_was_told_to_go_is_not_taken_back_and_its_order_stays_until_it_is_gone() -> None:
    known = {**replicas("r1"), "r2": replica("r2", draining=True)}
    memory = at(10.0, pool(known), wants(1, drains={"r2": 0.0})).memory
    more = at(11.0, pool(known, demand=asked(1.8)), memory)
    assert (more.desired, more.undrain, more.drain, more.remove) == (2, (), ("r2",), ("r2",))
    assert (more.exist, more.start) == (2, 1)
    assert at(12.0, pool(replicas("r1")), more.memory).drain == ()


def test_taking_back_is_preferred_to_starting() -> None:
    known = {
        **replicas("r1"),
        "r2": replica("r2", draining=True, running=3, weight=0.5),
        "r3": replica("r3", draining=True, running=3),
    }
    back = at(10.0, pool(known, demand=asked(1.8)), wants(1, drains={"r2": 0.0, "r3": 0.0}))
    assert (back.undrain, back.drain, back.start, back.exist) == (("r3",), ("r2",), 0, 3)


def test_where_only_the_last_can_go_the_last_one_drains_and_is_waited_for() -> None:
    order = ("p-2", "p-1", "p-0")
    known = {**replicas("p-0", "p-1", weight=0.1), "p-2": replica("p-2", running=2)}
    decision = lowered(pool(known, removal_order=order, demand=asked(0.5)), 3)
    assert (decision.drain, decision.remove) == (("p-1", "p-2"), ())
    leaving = {**replicas("p-0"), **replicas("p-1", draining=True), "p-2": replica("p-2", running=2, draining=True)}
    memory = wants(1, drains={"p-1": 0.0, "p-2": 0.0})
    assert at(50.0, pool(leaving, removal_order=order), memory).remove == ()
    empty = {**leaving, "p-2": replica("p-2", draining=True)}
    assert at(50.0, pool(empty, removal_order=order), memory).remove == ("p-1", "p-2")
    back = at(50.0, pool(leaving, removal_order=order, demand=asked(1.8)), memory)
    assert back.undrain == ("p-1",)


def test_where_only_the_last_can_go_and_a_person_drains_it_nobody_else_drains_in_vain() -> None:
    order = ("p-2", "p-1", "p-0")
    known = {**replicas("p-0", "p-1"), "p-2": replica("p-2", draining=True)}
    decision = lowered(pool(known, removal_order=order, held=frozenset({"p-2"}), demand=asked(0.5)), 2)
    assert (decision.desired, decision.drain, decision.remove) == (1, (), ())


def test_where_nobody_carries_it_out_nobody_drains() -> None:
    decision = lowered(pool(replicas("r1", "r2"), existing=None, demand=asked(0.5)), 2)
    assert (decision.desired, decision.exist, decision.drain, decision.remove) == (1, 1, (), ())


def test_a_replica_that_a_person_drains_is_replaced_and_otherwise_left_alone() -> None:
    load = pool({**replicas("r1"), "r2": replica("r2", draining=True)}, held=frozenset({"r2"}), demand=asked(1.8))
    decision = at(0.0, load, wants(2))
    assert (decision.start, decision.exist, decision.drain, decision.undrain) == (1, 3, (), ())


def test_a_silent_replica_is_no_capacity_and_keeps_its_place_until_it_is_lost() -> None:
    known = {**replicas("r1", "r2"), "r3": replica("r3", heard_at_s=-10.0)}
    load = pool(known, demand=asked(2.5))
    silent = at(15.0, load, wants(3))
    assert (silent.capacity_tokens_per_s, silent.desired, silent.start) == (1_280.0, 3, 0)
    assert at(25.0, load, silent.memory).start == 1


def test_a_silent_replica_that_the_actuator_does_not_know_any_more_is_replaced_at_once() -> None:
    known = {**replicas("r1", "r2"), "r3": replica("r3", heard_at_s=-10.0)}
    assert at(0.0, pool(known, existing=frozenset({"r1", "r2"}), demand=asked(2.5)), wants(3)).start == 1


def test_if_most_fall_silent_it_is_our_hearing() -> None:
    load = pool(replicas("r1", "r2", "r3", heard_at_s=-10.0), demand=asked(9.0))
    deaf = at(60.0, load, wants(3))
    assert (deaf.desired, deaf.start, deaf.remove) == (3, 0, ())
    assert deaf.reason == "3 replicas fell silent at once, so it is rather we who do not hear"


def test_a_wish_comes_down_step_by_step_after_the_largest_need_of_the_last_minutes() -> None:
    policy = ScalePolicy()
    memory, downs = wants(10), []
    for second in range(800):
        load = pool(replicas(*(f"r{n}" for n in range(10))), existing=None, demand=asked(6.8 if second < 200 else 2.8))
        decision = at(float(second), load, memory, policy)
        if decision.desired != memory.desired:
            downs.append((second, decision.desired))
        memory = decision.memory
    assert [desired for _, desired in downs] == [8, 7, 6, 5, 4, 3]
    assert downs[0][0] >= 180
    assert downs[2][0] >= 200 + 180


def test_the_wish_does_not_turn_more_often_than_it_may() -> None:
    policy = ScalePolicy(pace=PacePolicy(down_hold_s=8.0, down_step_s=1.0, panic_s=1.0))
    memory, turns = wants(3), 0
    for second in range(1_200):
        load = pool(replicas("r1", "r2", "r3"), existing=None, demand=asked(3.8 if second % 100 < 50 else 1.5))
        decision = at(float(second), load, memory, policy)
        turns += (memory.desired or 0) > decision.desired and memory.rising
        memory = decision.memory
    assert turns == 3
    assert "turned 3 times within an hour" in for_seconds(30, load, memory, policy, 1_200).reason


def test_a_leap_within_the_noise_waits_for_the_average() -> None:
    leap = asked(1.0, requests_per_s_short=2.0 * asked(1.0).requests_per_s)
    assert at(0.0, pool(replicas("r1"), demand=leap), wants(1)).desired == 2
    noisy = msgspec.structs.replace(leap, noise_per_s_short=leap.requests_per_s / 2.0)
    assert at(0.0, pool(replicas("r1"), demand=noisy), wants(1)).desired == 1


def test_after_a_leap_nothing_is_taken_away_for_a_while() -> None:
    leap = asked(1.0, requests_per_s_short=3.0 * asked(1.0).requests_per_s)
    load = pool(replicas("r1"), existing=None, demand=leap)
    memory = at(0.0, load, wants(1), QUICK).memory
    calm = pool(replicas("r1", "r2", "r3"), existing=None, demand=asked(0.5))
    settled = for_seconds(50, calm, memory, QUICK, begin=1)
    assert (settled.desired, settled.reason) == (3, "1 would do, but the load has just leapt")
    assert for_seconds(12, calm, settled.memory, QUICK, begin=51).desired == 1


def test_what_a_leap_asked_for_is_remembered_as_long_as_any_need() -> None:
    policy = ScalePolicy(pace=PacePolicy(down_hold_s=80.0, panic_s=1.0))
    leap = asked(1.0, requests_per_s_short=3.0 * asked(1.0).requests_per_s)
    memory = at(0.0, pool(replicas("r1"), existing=None, demand=leap), wants(1), policy).memory
    calm = pool(replicas("r1", "r2", "r3"), existing=None, demand=asked(0.5))
    held = for_seconds(75, calm, memory, policy, begin=1)
    assert held.desired == 3
    assert for_seconds(20, calm, held.memory, policy, begin=76).desired == 2


def test_whoever_was_told_to_go_and_is_still_there_after_minutes_is_looked_at_anew() -> None:
    memory = at(0.0, pool(replicas("r1", "r2"), wanted=True), wants(1, removing={"r2": -100.0}), QUICK).memory
    assert memory.removing == {"r2": -100.0}
    assert at(21.0, pool(replicas("r1", "r2")), memory, QUICK).serving == 1
    assert at(22.0, pool(replicas("r1", "r2")), at(21.0, pool(replicas("r1", "r2")), memory, QUICK).memory).serving == 2


@pytest.mark.parametrize("silent_s", [1.0, 20.0, 29.5, 90.0])
def test_what_a_replica_said_before_it_was_removed_is_no_word_of_the_next_one_with_its_name(silent_s: float) -> None:
    before = replicas("r1") | replicas("r2", heard_at_s=-silent_s, draining=True)
    memory = at(0.0, pool(before, existing=frozenset({"r1"})), wants(1)).memory
    load = pool(before, existing=frozenset({"r1", "r2"}), demand=asked(2.5))
    for now_s in (1.0, 2.0):
        decision = at(now_s, load, memory)
        assert (decision.pending, decision.start, decision.exist) == (1, 1, 3), "r2 is coming"
        memory = decision.memory
    heard = replicas("r1", "r2")
    assert at(3.0, pool(heard, demand=asked(2.5)), memory).serving == 2


def test_a_replica_that_is_killed_and_started_again_keeps_its_place() -> None:
    load = pool(replicas("r1") | replicas("r2", heard_at_s=-5.0), demand=asked(1.5))
    assert at(0.0, load, wants(2)).start == 0


def test_limits_say_so() -> None:
    load = pool(replicas("r1"), demand=asked(9.0))
    capped = at(0.0, load, wants(1), ScalePolicy(max_replicas=4))
    assert (capped.desired, capped.reason.rpartition("; ")[2]) == (4, "9 would be needed, MAX_REPLICAS allows 4")
    poor = at(0.0, msgspec.structs.replace(load, affordable=2), wants(1))
    assert (poor.desired, poor.reason.rpartition("; ")[2]) == (2, "9 would be needed, the budget allows 2")
    assert at(0.0, msgspec.structs.replace(load, affordable=0), wants(1)).desired == 1


def test_a_capped_wish_is_no_new_raise_every_second() -> None:
    policy = ScalePolicy(max_replicas=2)
    decision = for_seconds(10, pool(replicas("r1"), existing=None, demand=asked(9.0)), wants(1), policy)
    assert decision.memory.raised_at_s == 0.0


def test_wished_replicas_that_do_not_come_stop_counting_where_the_actuator_cannot_say() -> None:
    load = pool(replicas("r1"), existing=None, demand=asked(1.8))
    memory = at(0.0, load, wants(1)).memory
    assert at(179.0, load, memory).pending == 1
    late = at(180.0, load, memory)
    assert (late.pending, late.desired) == (0, 2)
    assert late.reason.endswith("; 1 that were wished for have not come within 180 s")


def test_a_restart_waits_for_what_was_wished_before() -> None:
    load = pool(replicas("r1"), existing=None, demand=asked(0.5))
    after = at(1.0, load, remembered(3, {}, 0.0))
    assert (after.desired, after.pending) == (3, 2)


def test_an_unwanted_pool_drains_to_nothing() -> None:
    known = replicas("r1", running=1)
    decision = at(0.0, pool(known, wanted=False, demand=asked(0.3)), wants(1))
    assert (decision.desired, decision.drain, decision.exist) == (0, ("r1",), 1)
    gone = at(10.0, pool(replicas("r1", draining=True), wanted=False), decision.memory)
    assert (gone.remove, gone.exist) == (("r1",), 0)


def test_the_shape_of_the_day_is_a_floor_that_looks_ahead() -> None:
    policy = ScalePolicy(floor=FloorPolicy(enabled=True))
    memory, load = wants(1), pool(replicas("r1"), existing=None)
    for now_s, needs in ((0.0, 1.0), (1_000.0, 5.0), (1_900.0, 1.0)):
        memory = at(now_s, msgspec.structs.replace(load, day_s=now_s, demand=asked(needs)), memory, policy).memory
    memory = msgspec.structs.replace(memory, desired=1, highs=())
    before = at(86_400.0 + 700.0, msgspec.structs.replace(load, day_s=700.0, demand=asked(0.5)), memory, policy)
    assert before.desired == 1
    ahead = at(86_400.0 + 721.0, msgspec.structs.replace(load, day_s=721.0, demand=asked(0.5)), memory, policy)
    assert (ahead.desired, ahead.reason) == (5, "this time of day needed 5.0 on 1 last days")


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 3), st.floats(0, 60), st.integers(0, 10**6), st.floats(-50, 0)),
        max_size=40,
    ),
    st.integers(1, 5),
    st.integers(5, 60),
)
@pytest.mark.parametrize("knows", [True, False])
def test_a_wish_stays_within_its_limits_and_nobody_unknown_is_touched(
    knows: bool, looks: list[tuple[int, int, float, int, float]], lowest: int, highest: int
) -> None:
    policy = ScalePolicy(min_replicas=lowest, max_replicas=highest, pace=PacePolicy(down_hold_s=3.0))
    memory = PoolMemory()
    for second, (ready, starting, needs, tokens, heard_at_s) in enumerate(looks):
        known = replicas(*(f"r{n}" for n in range(ready)), tokens_in_flight=tokens)
        known |= replicas(*(f"s{n}" for n in range(starting)), ready=False, heard_at_s=heard_at_s)
        load = pool(known, demand=asked(needs), **({} if knows else {"existing": None}))
        decision = at(float(second), load, memory, policy)
        assert lowest <= decision.desired <= highest
        assert decision.reason
        assert {*decision.drain, *decision.remove, *decision.undrain} <= known.keys()
        assert decision.exist >= 0
        memory = decision.memory
