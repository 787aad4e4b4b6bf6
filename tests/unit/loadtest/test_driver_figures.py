import pytest

from loadtest.bench import fleet_figures
from loadtest.measures import Seen, contents, quantile, spread_ms, summary
from loadtest.workload import Shape, arrivals


def seen(alias: str, text: str, outcome: str = "ok", tier: str = "gpu") -> Seen:
    return Seen(
        alias=alias, outcome=outcome, tier=tier, lag_s=0.0, ttft_s=0.1, tpot_s=0.01, e2el_s=0.5, tokens=4, text=text
    )  # fmt: skip


def test_the_same_seed_gives_the_same_load_in_order_of_time() -> None:
    shape = Shape(rate_per_s=10, requests=200, zipf=1.0, seed=3)
    load = list(arrivals(shape, ["a", "b", "c"]))
    assert load == list(arrivals(shape, ["a", "b", "c"]))
    assert [one.at_s for one in load] == sorted(one.at_s for one in load)
    assert 10 < load[-1].at_s < 30


def test_zipf_makes_the_first_alias_the_most_popular() -> None:
    load = list(arrivals(Shape(rate_per_s=1, requests=3000, zipf=1.0), ["a", "b", "c"]))
    shares = [sum(one.alias == alias for one in load) / 3000 for alias in "abc"]
    assert all(abs(share - expected) < 0.03 for share, expected in zip(shares, (6 / 11, 3 / 11, 2 / 11), strict=True))


def test_a_foreign_marker_is_counted_even_beside_the_own_one() -> None:
    markers = {"a": "MARKA", "b": "MARKB"}
    good = [seen("a", "MARKA"), seen("a", "MARKA MARKB"), seen("b", "nothing"), seen("base", "MARKA")]
    assert contents(good, markers) == {"checked": 4, "own": 2, "foreign": 2, "missing": 1}


def test_failures_are_counted_by_what_happened_and_not_timed() -> None:
    figures = summary([seen("a", ""), seen("a", "", outcome="503")], 2.0, {})
    assert figures["completed"] == 1
    assert figures["failures"] == {"503": 1}
    assert figures["request_throughput"] == 0.5
    assert figures["ttft_ms_by_tier"]["gpu"]["median"] == 100.0


def test_no_values_have_no_spread() -> None:
    assert spread_ms([None]) is None


@pytest.mark.parametrize(("share", "value"), [(0.01, 1), (0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
def test_of_a_hundred_values_the_quantile_is_its_own_rank(share: float, value: int) -> None:
    assert quantile(list(range(100, 0, -1)), share) == value


def test_the_benchmark_names_what_it_could_not_measure() -> None:
    figures = fleet_figures([seen("a", "", tier="gpu"), seen("a", "", tier="disk")], 0.04)
    assert (figures["ttft_s.gpu"].value, figures["ttft_s.gpu"].met) == (0.1, True)
    assert (figures["ttft_s.remote"].value, figures["ttft_s.remote"].met) == (None, False)
    assert figures["added_ttft_ms.p50"].value == 60.0
    assert fleet_figures([], 0.04)["added_ttft_ms.p50"].value is None
