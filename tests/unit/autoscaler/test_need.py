"""Each measure asks with its own reason, and the largest need wins."""

from __future__ import annotations

from typing import Any

import pytest

from services.autoscaler.core.load import Demand, PoolLoad
from services.autoscaler.core.memory import Pace
from services.autoscaler.core.need import Needs, Situation, needs_of, queue_s
from services.autoscaler.core.policy import NeedPolicy
from services.autoscaler.core.roster import Roster
from tests.unit.autoscaler.pools import RATE, asked, pool, replicas


def situation(load: PoolLoad, *, pending: int = 0, **pace: Any) -> Situation:
    known = tuple(load.replicas.values())
    return Situation(
        load=load,
        roster=Roster(heard=known, serving=known, unheard=pending),
        pace=Pace(**{"rate": RATE, **pace}),
        policy=NeedPolicy(),
    )


def needs(load: PoolLoad, **changes: Any) -> Needs:
    return needs_of(situation(load, **changes))


def test_what_is_asked_for_needs_replicas_at_the_utilisation_that_is_aimed_at() -> None:
    found = needs(pool(replicas("r1"), demand=asked(2.5)))
    assert found.cause.replicas == pytest.approx(2.5)
    assert found.cause.reason == "1280 tokens a second are asked for, at 512 a replica"


def test_what_may_be_chance_is_not_asked_for() -> None:
    """A hundred noisy looks, of which the largest wins, would ask for more than there is."""
    found = needs(pool(replicas("r1"), demand=asked(2.5, noise_per_s=asked(0.5).requests_per_s)))
    assert found.cause.replicas == pytest.approx(2.0)


def test_placement_may_need_more_than_the_traffic() -> None:
    load = pool(replicas("r1"), demand=asked(2.5), pressure_replicas=4, pressure_reason="1200 evictions a minute")
    assert (needs(load).cause.replicas, needs(load).cause.reason) == (4, "placement: 1200 evictions a minute")


@pytest.mark.parametrize("demand", [Demand(), Demand(heard=True, requests_per_s=9.0)])
def test_what_is_not_known_is_not_guessed(demand: Demand) -> None:
    assert needs(pool(replicas("r1"), demand=demand)).cause.replicas == 0.0


def test_a_queue_asks_for_what_arrives_and_for_working_it_off() -> None:
    waiting = replicas("r1", "r2", queue_depth=200, queued_tokens=200_000)
    found = needs(pool(waiting, demand=asked(2.0)))
    # 400 requests of 100 tokens, not the 400,000 that they are allowed.
    assert found.queue_s == pytest.approx(40_000 / 1280)
    assert found.symptom.replicas == pytest.approx((2.0 * 512 + 40_000 / 120) / 640)
    assert found.symptom.reason == "40000 queued tokens are 31.2 s of work"


def test_pending_replicas_shorten_the_queue_that_is_predicted() -> None:
    load = pool(replicas("r1", queue_depth=10, queued_tokens=10_000), demand=asked(1.0))
    assert queue_s(situation(load)) == pytest.approx(1_000 / 640)
    assert queue_s(situation(load, pending=3)) == pytest.approx(1_000 / 2_560)


def test_a_queue_is_seen_coming() -> None:
    assert needs(pool(replicas("r1"), demand=asked(1.4))).symptom.replicas == 0.0
    coming = needs(pool(replicas("r1"), demand=asked(1.0, requests_per_s_short=8.0)))
    assert coming.symptom.reason == "1600 queued tokens are 2.5 s of work"


def test_rows_keep_replicas_and_call_for_none_where_the_demand_is_known() -> None:
    known = needs(pool(replicas("r1"), demand=asked(1.0)), running=40.0)
    assert (known.symptom.replicas, known.largest.replicas) == (0.0, pytest.approx(40 / 28.8))
    assert needs(pool(replicas("r1")), running=40.0).symptom.reason == "40 running requests at 29 a replica"


def test_tokens_and_slots_are_limits_of_their_own() -> None:
    found = needs(pool(replicas("r1"), demand=asked(1.0)), held_tokens=200_000.0)
    assert (found.symptom.replicas, found.symptom.reason) == (3.125, "200000 tokens in flight at 64000 a replica")
    found = needs(pool(replicas("r1"), demand=asked(1.0)), slots_share=0.94)
    assert (found.symptom.replicas, found.symptom.reason) == (2.0, "94 % of the slots are busy")


def test_a_replica_that_holds_more_may_have_promised_more() -> None:
    mixed = {**replicas("r1", kv_total_tokens=136_000), **replicas("r2", kv_total_tokens=4_000)}
    found = needs(pool(mixed, demand=asked(1.0)), held_tokens=200_000.0)
    assert (found.symptom.replicas, found.symptom.reason) == (2.0, "200000 tokens in flight at 100000 a replica")


def test_full_kv_caches_ask_for_room_to_grow() -> None:
    found = needs(pool(replicas("r1", "r2", kv_total_tokens=64_000), demand=asked(1.0)), kv_filled=1.92)
    reason = "96 % of the KV cache is in use, at 80 % a replica"
    assert (found.symptom.replicas, found.symptom.reason) == (pytest.approx(2.4), reason)


def test_who_says_nothing_of_its_kv_cache_is_neither_full_nor_empty() -> None:
    silent = replicas("r1", "r2", "r3")
    assert needs(pool(silent, demand=asked(0.5)), kv_filled=2.0).symptom.replicas == 0.0
    beside = {**silent, **replicas("r4", kv_total_tokens=64_000)}
    assert needs(pool(beside, demand=asked(0.5)), kv_filled=1.0).symptom.replicas == 3 + 1 / 0.8
    assert needs(pool(beside, demand=asked(0.5)), kv_filled=0.4).symptom.replicas == 0.4 / 0.8


@pytest.mark.parametrize(
    ("load", "short", "long", "replicas_needed"),
    [(0.95, 0.2, 0.06, 2.0), (0.95, 0.2, 0.04, 0.0), (0.95, 0.09, 0.06, 0.0), (0.5, 0.2, 0.06, 0.0)],
    ids=["it burns", "only lately", "no longer", "not for lack of replicas"],
)
def test_late_first_tokens_ask_for_one_more(load: float, short: float, long: float, replicas_needed: float) -> None:
    found = needs(pool(replicas("r1"), demand=asked(load, late_share_short=short, late_share=long)))
    assert found.symptom.replicas == replicas_needed


def test_late_first_tokens_behind_a_queue_ask_for_nothing_that_the_queue_does_not() -> None:
    waiting = replicas("r1", queue_depth=40, queued_tokens=40_000)
    found = needs(pool(waiting, demand=asked(0.9, late_share_short=1.0, late_share=1.0)))
    assert found.symptom.reason == "4000 queued tokens are 6.2 s of work"
