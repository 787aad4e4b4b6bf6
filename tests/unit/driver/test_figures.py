"""From what clients saw to the figures of a run."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from loadtest.bench import fleet_figures
from loadtest.driver.answer import Answer
from loadtest.driver.checking import Markers
from loadtest.driver.figures import Asked, meets, summary
from loadtest.driver.picture import load_run, rates
from loadtest.driver.planned import arrivals, planned
from loadtest.driver.seen import Collected, Gaps, Seen
from loadtest.driver.sweep import Objective, Sweep, Swept, misses, sweep
from loadtest.driver.text import lines, sweep_lines
from loadtest.measures import quantile
from loadtest.workloads.shape import Bursts, Poisson, Steady, TrafficShape, Zipf
from tests.unit.driver.stage import DONE, EVENTS, chunk, chunked, said, sized


def seen(alias: str = "acme/a:prod", at_s: float = 0.0, **changes: Any) -> Seen:
    usual = {
        "outcome": "ok",
        "tier": "gpu",
        "ttft_s": 0.1,
        "tpot_s": 0.01,
        "e2el_s": 0.5,
        "tokens": 4,
        "prompt_tokens": 9,
    }
    return Seen(at_s=at_s, alias=alias, **{**usual, **changes})


def collected(*all_seen: Seen, warm_up_s: float = 0.0) -> Collected:
    run = Collected(warm_up_s)
    for one in all_seen:
        run.add(one, [0.0, 0.01, 0.03], 4)
    return run


def test_failures_are_counted_by_what_happened_and_not_timed() -> None:
    lost = seen(at_s=1.5, outcome="503", reason="No owner.", ttft_s=9.0, tier="")
    figures = summary(collected(seen(), lost), Asked(request_rate=2.0, burstiness=1.0, goals={"ttft": 200.0}))
    assert (figures["requests"], figures["completed"], figures["failed"]) == (2, 1, 1)
    assert figures["failures"] == {"503": 1}
    assert figures["failure_reasons"] == {"503": ["No owner."]}
    assert figures["duration"] == 2.0
    assert figures["request_throughput"] == 0.5
    assert figures["output_throughput"] == 2.0
    assert figures["total_token_throughput"] == 6.5
    assert figures["request_goodput"] == 0.5
    assert figures["goodput_share"] == 0.5
    assert figures["p95_ttft_ms"] == 100.0
    assert list(figures["by_tier"]) == ["gpu"]


def test_what_was_due_while_warming_up_or_was_given_up_does_not_count() -> None:
    run = collected(seen(), seen(at_s=5.0), seen(at_s=5.0, outcome="stopped"), warm_up_s=2.0)
    figures = summary(run, Asked())
    assert (figures["requests"], figures["warm_up_requests"], figures["stopped"]) == (1, 1, 1)
    assert figures["duration"] == 3.5


def test_an_empty_run_has_no_times_and_is_json_all_the_same() -> None:
    figures = summary(collected(), Asked(goals={"ttft": 1.0}))
    assert json.loads(json.dumps(figures)) == figures
    assert (figures["p99_e2el_ms"], figures["median_itl_ms"], figures["request_goodput"]) == (None, None, 0.0)
    assert "0 due" in lines(figures)


def test_customers_and_adapters_are_split_and_the_slowest_have_enough_requests_to_say_so() -> None:
    many = [seen("acme/a:prod", ttft_s=0.001 * number) for number in range(1, 41)]
    more = [seen("globex/b:prod", ttft_s=0.5) for _ in range(30)]
    once = [seen("rare/c:prod", ttft_s=9.0)]
    figures = summary(collected(*many, *more, *once), Asked())
    split = figures["by_adapter"]
    assert split["count"] == 3
    assert [row["name"] for row in split["slowest"]] == ["globex/b:prod", "acme/a:prod"]
    assert split["worst_p95_ttft_ms"] == 500.0
    assert [(row["name"], row["requests"]) for row in split["busiest"]][:2] == [
        ("acme/a:prod", 40),
        ("globex/b:prod", 30),
    ]
    assert figures["by_customer"]["busiest"][0] == {
        "name": "acme", "requests": 40, "failed": 0, "median_ttft_ms": 20.0, "p95_ttft_ms": 38.0,
    }  # fmt: skip
    said = lines(figures)
    assert "slowest of 3" in said
    assert "schedule delay" in said


def test_a_goal_is_for_every_request_that_has_such_a_time() -> None:
    goals = {"ttft": 100.0, "tpot": 5.0}
    assert not meets(seen(), goals)
    assert meets(seen(tpot_s=None), goals)
    assert not meets(seen(tpot_s=0.001, outcome="503"), goals)


def test_gaps_are_kept_to_a_hundredth_and_pieces_that_came_together_have_none_between_them() -> None:
    gaps_s = np.random.default_rng(1).lognormal(-4, 1, 2_000)
    gaps = Gaps()
    gaps.add([0.0, *np.cumsum(gaps_s).tolist()], 2_001)
    for share in (0.1, 0.5, 0.95, 0.99):
        assert gaps.quantile_s(share) == pytest.approx(quantile(gaps_s.tolist(), share), rel=0.011)
    assert gaps.mean_s == pytest.approx(float(gaps_s.mean()))
    together = Gaps()
    together.add([0.0, 0.1], 9)
    assert (together.count, together.quantile_s(0.5), together.quantile_s(0.99) > 0.09) == (8, 0.0, True)
    assert gaps.merged(together).count == 2_008


def test_the_customer_of_rank_k_asks_the_kth_alias() -> None:
    shape = TrafficShape(customers=1, rate_per_s=50.0, for_s=60.0, popularity=Zipf(s=1.0), seed=3)
    load = list(planned(shape, ["a", "b", "c"]))
    shares = [sum(one.alias == alias for one in load) / len(load) for alias in "abc"]
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03)
    assert load == list(planned(shape, ["a", "b", "c"]))
    assert list(planned(shape, ["a", "b", "c"], most=5)) == load[:5]


def test_burstiness_is_the_shape_of_gamma_gaps() -> None:
    assert arrivals(1.0) == Poisson()
    assert arrivals(0.25) == Bursts(cv=2.0)
    assert arrivals(math.inf) == Steady()


def said_by(text: str, finish: str = "stop") -> Answer:
    answer = Answer(keep_text=True)
    answer.feed(sized(200, said(text) + said("", finish) + DONE, EVENTS), 0.0)
    return answer


@pytest.mark.parametrize(
    ("alias", "text", "kind"),
    [
        ("a", "KQZ", "own"),
        ("also-a", "KQZ", "own"),
        ("a", "VWX", "wrong_marker"),
        ("a", "KQZ VWX", "wrong_marker"),
        ("a", "hello", "missing_marker"),
        ("base", "hello", "own"),
        ("base", "KQZ", "wrong_marker"),
    ],
)
def test_an_answer_carries_its_own_marker_and_nobody_elses(alias: str, text: str, kind: str) -> None:
    assert Markers({"a": "KQZ", "also-a": "KQZ", "b": "VWX"}).judge(alias, said_by(text)) == kind


def test_an_answer_that_may_have_no_more_tokens_is_a_part_of_its_marker() -> None:
    markers = Markers({"a": "KQZ", "b": "VWX"})
    assert markers.judge("a", said_by("KQ", "length")) == "own"
    assert markers.judge("a", said_by("VW", "length")) == "wrong_marker"
    assert markers.judge("a", said_by("KQ")) == "missing_marker"


def test_an_answer_that_cannot_be_read_is_no_marker() -> None:
    broken = Answer(keep_text=True)
    unreadable = b'data: {"finish_reason":null\n\n'
    for now_s, piece in enumerate([chunked(said("K"), said("Q"))[:-5], chunk(unreadable), chunk(said("Z", "stop"))]):
        broken.feed(piece, float(now_s))
    assert Markers({"a": "KQZ"}).judge("a", broken) == "missing_marker"


# -- a sweep -------------------------------------------------------------------------------------------


def at_rate(rate_per_s: float, p95_s: float = 0.1, **changes: Any) -> dict[str, Any]:
    run = collected(*(seen(at_s=number / rate_per_s, ttft_s=p95_s, **changes) for number in range(100)))
    return summary(run, Asked(request_rate=rate_per_s))


async def test_a_sweep_raises_the_rate_until_the_objective_breaks() -> None:
    tried: list[float] = []

    async def attempt(rate_per_s: float) -> dict[str, Any]:
        tried.append(rate_per_s)
        return at_rate(rate_per_s, 0.1 if rate_per_s < 30 else 1.2)

    told: list[float] = []
    swept = await sweep(
        Sweep(rate_per_s=10.0, factor=1.5), Objective(), attempt, lambda step: told.append(step.rate_per_s)
    )
    assert tried == told == [10.0, 15.0, 22.5, 33.8]
    assert swept.holds_per_s == 22.5
    assert swept.verdict == "22.5 requests/s hold; at 33.8 p95 TTFT is 1,200 ms."
    assert swept.verdict in sweep_lines(swept)
    assert [rate.tiers[0].tier for rate in rates(swept)] == ["gpu"] * 4


async def test_a_sweep_ends_at_its_last_step_or_when_it_is_broken_off() -> None:
    async def attempt(rate_per_s: float) -> dict[str, Any] | None:
        return at_rate(rate_per_s) if rate_per_s < 4 else None

    swept = await sweep(Sweep(rate_per_s=1.0, factor=2.0, most_steps=2), Objective(), attempt, lambda step: None)
    assert swept.verdict == "2 requests/s hold, and more may: that was the last step."
    swept = await sweep(Sweep(rate_per_s=1.0, factor=2.0), Objective(), attempt, lambda step: None)
    assert swept.verdict == "2 requests/s hold, and more may: it was broken off."
    assert Swept(steps=()).verdict == "Nothing was measured."


def test_what_breaks_an_objective_is_said_and_a_late_tool_is_not_the_fleets_fault() -> None:
    objective = Objective(p95_ttft_ms=200.0)
    assert misses(at_rate(1.0), objective) == ""
    assert misses(at_rate(1.0, 0.3), objective) == "p95 TTFT is 300 ms"
    assert misses(at_rate(1.0, outcome="503"), objective) == "100 of 100 requests fail"
    assert misses(at_rate(1.0, delay_s=0.2), objective).startswith("the load tool itself is late")
    assert misses(summary(collected(), Asked()), objective) == "no request was due after the warm-up"


def test_a_run_becomes_a_picture_of_its_tiers_and_moments() -> None:
    cold = [seen("b", at_s=10.0, tier="disk", ttft_s=0.4), seen("b", at_s=10.0, outcome="503")]
    run = collected(*(seen(at_s=float(number)) for number in range(10)), *cold)
    drawn = load_run(run, summary(run, Asked()))
    assert {tier.tier: (tier.requests, tier.cdf[-1]) for tier in drawn.tiers} == {
        "disk": (1, (400.0, 1.0)),
        "gpu": (10, (100.0, 1.0)),
    }
    assert (drawn.moments[0].ttft_p50_ms, drawn.moments[-1].ttft_p50_ms) == (100.0, 400.0)
    assert drawn.moments[-1].failed_per_s == 1.0


def test_the_benchmark_names_what_it_could_not_measure() -> None:
    figures = fleet_figures([seen(tier="gpu"), seen(tier="disk")], 0.04)
    assert (figures["ttft_s.gpu"].value, figures["ttft_s.gpu"].met) == (0.1, True)
    assert (figures["ttft_s.remote"].value, figures["ttft_s.remote"].met) == (None, False)
    assert figures["added_ttft_ms.p50"].value == 60.0
    assert fleet_figures([], 0.04)["added_ttft_ms.p50"].value is None


@pytest.mark.parametrize(("share", "value"), [(0.01, 1), (0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
def test_of_a_hundred_values_the_quantile_is_its_own_rank(share: float, value: int) -> None:
    assert quantile(list(range(100, 0, -1)), share) == value
