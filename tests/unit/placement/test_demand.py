"""Demand: what gateways say adds up to rates that are right while messages get lost and gateways come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.placement.core.demand import Demand, DemandPolicy, fold, heard_share
from services.placement.core.rates import Only, Rate, asked, steady
from services.placement.core.trace import Answers, answers_of
from shared.contracts.catalog import GATEWAY_ACTIVITY
from shared.contracts.codec import decode, encode
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity

POLICY = DemandPolicy()
POOL = "pool"
NOTHING = Demand()


def said(sequence: int, gateway_id: str = "g1", refused: int = 0, **adapters: tuple[int, int, int]) -> GatewayActivity:
    """Requests, finished answers and tokens of each adapter, as a reader gets them."""
    seen = {name: AdapterActivity(requests=r, finished=f, tokens=t) for name, (r, f, t) in adapters.items()}
    pool = PoolActivity(requests=sum(each.requests for each in seen.values()), refused=refused, adapters=seen)
    message = GatewayActivity(gateway_id=gateway_id, sequence=sequence, interval_s=1.0, pools={POOL: pool})
    return decode(GATEWAY_ACTIVITY, encode(GATEWAY_ACTIVITY, message))


def after(
    seconds: int, *gateways: str, demand: Demand = NOTHING, since: int = 0, lost: frozenset[int] = frozenset()
) -> Demand:
    """Each gateway passes on 500 tokens of two answers a second for adapter a."""
    for second in range(since + 1, since + seconds + 1):
        for name in gateways:
            if second not in lost:
                demand = fold(demand, said(second, name, a=(2, 2, 500)), float(second), POLICY)
    return demand


def rate(demand: Demand, now_s: float, name: str = "a") -> Rate:
    return asked(demand, POOL, now_s, POLICY)[name]


def test_a_steady_customer_comes_out_exact_and_soon() -> None:
    assert rate(after(60, "g1"), 60.0).tokens_per_s == pytest.approx(500.0, rel=0.001)
    assert rate(after(8, "g1"), 8.0).tokens_per_s == pytest.approx(375.0, rel=0.001), "two half-lives"
    assert rate(after(60, "g1"), 60.9).tokens_per_s == pytest.approx(500.0, rel=0.001), "until the next is due"


def test_gateways_add_up_and_a_silent_one_fades_out() -> None:
    both = after(60, "g1", "g2")
    assert rate(both, 60.0).tokens_per_s == pytest.approx(1_000.0, rel=0.001)
    later = after(20, "g1", demand=both, since=60)
    assert rate(later, 80.0).tokens_per_s == pytest.approx(500.0, rel=0.05)
    assert rate(both, 180.0).tokens_per_s < 1.0


@given(st.sets(st.integers(30, 58), max_size=10))
def test_lost_messages_are_made_good_by_the_next(lost: set[int]) -> None:
    assert rate(after(60, "g1", lost=frozenset(lost)), 60.0).tokens_per_s == pytest.approx(500.0, rel=0.2)


def test_what_a_gateway_did_in_a_long_absence_is_not_guessed_at() -> None:
    away = fold(after(30, "g1"), said(1_000, a=(2, 2, 500)), 1_000.0, POLICY)
    assert rate(away, 1_000.0).tokens_per_s == pytest.approx(500.0 * 0.159, rel=0.01)


def test_a_repeated_or_late_message_changes_nothing_and_a_new_process_is_heard() -> None:
    demand = after(30, "g1")
    for sequence in (30, 29, 26):
        assert fold(demand, said(sequence, a=(9, 9, 9_000)), 30.5, POLICY) is demand
    assert fold(demand, said(1, a=(2, 2, 500)), 31.0, POLICY) is not demand


def test_where_the_fleet_is_full_requests_tell_what_is_asked_for() -> None:
    """Four answers of 250 tokens are asked for each second, and half of the tokens can be passed on."""
    demand = after(120, "g1")
    for second in range(121, 161):
        demand = fold(demand, said(second, a=(4, 2, 500)), float(second), POLICY)
    assert 850.0 < rate(demand, 160.0).tokens_per_s < 1_050.0


def test_tokens_of_answers_that_have_not_finished_do_not_make_answers_look_long() -> None:
    """A customer begins: for twelve seconds nothing finishes though tokens come."""
    demand = after(300, "g1")
    for second in range(301, 311):
        demand = fold(demand, said(second, a=(2, 2, 500), new=(8, 0, (second - 300) * 160)), float(second), POLICY)
    assert rate(demand, 310.0, "new").tokens_per_s < 1.3 * 2_000.0


def test_nobody_gets_a_fleet_by_asking_alone() -> None:
    demand = after(60, "g1")
    for second in range(61, 121):
        demand = fold(demand, said(second, refused=1_000, a=(2, 2, 500), loud=(1_000, 0, 10)), float(second), POLICY)
    assert rate(demand, 120.0, "loud").tokens_per_s <= 40.0


def test_the_long_memory_knows_how_much_of_it_was_heard() -> None:
    demand = after(300, "g1")
    assert heard_share(demand, 300.0, POLICY) == pytest.approx(0.5, abs=0.01)
    assert steady(demand, POOL, 300.0, POLICY)["a"] == pytest.approx(1.0, abs=0.01), "half of two a second"
    assert heard_share(demand, 600.0, POLICY) == pytest.approx(0.25, abs=0.01)
    assert heard_share(Demand(), 5.0, POLICY) == 0.0


def test_who_has_faded_is_forgotten() -> None:
    demand = fold(Demand(), said(1, once=(1, 1, 10)), 1.0, POLICY)
    for second in range(2, 70):
        demand = fold(demand, said(second, a=(2, 2, 500)), 10_000.0 + second, POLICY)
    assert set(demand.traces[POOL]) == {"a"}


def test_who_was_loud_once_is_not_looked_at_for_hours() -> None:
    """Each adapter has one answer and is never asked for again: long memories last for an hour and more."""
    demand = Demand()
    for second in range(1, 1_001):
        said_now = said(second, a=(2, 2, 500), **{f"once-{second}": (1, 1, 250)})
        demand = fold(demand, said_now, float(second), POLICY)
    assert len(demand.traces[POOL]) > 900
    assert "a" in demand.loud[POOL]
    assert len(demand.loud[POOL]) < 80


def test_a_pool_that_is_gone_is_forgotten() -> None:
    """Merged pools come and go with their customers."""
    demand = fold(Demand(), said(1, a=(2, 2, 500)), 1.0, POLICY)
    for second in range(2, 65):
        demand = fold(demand, said(second), 10_000.0 + second, POLICY)
    assert not {*demand.traces, *demand.loud, *demand.answers}


def test_gateways_that_are_gone_are_forgotten() -> None:
    """Each rollout brings new names."""
    demand = Demand()
    for second in range(1, 2_001):
        demand = fold(demand, said(1, f"g{second}", a=(2, 2, 500)), float(second), POLICY)
    assert len(demand.voices) <= 600 + 64
    assert fold(demand, said(1, "g1999", a=(9, 9, 9)), 2_000.5, POLICY) is demand, "who spoke a moment ago is known"


def test_a_clock_that_was_put_back_adds_nothing() -> None:
    """Time on the scale of what was heard steps back when replicas are heard again."""
    demand = after(60, "g1")
    for second in range(41, 61):
        demand = fold(demand, said(second + 20, a=(2, 2, 500)), float(second), POLICY)
    assert rate(demand, 60.0).tokens_per_s == pytest.approx(500.0, rel=0.2)


SAID = st.lists(
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 400)), max_size=8
    ),
    max_size=140,
)


@given(SAID, st.sampled_from([64.0, 96.0, 1_000.0]), st.sets(st.sampled_from("abcdefgh"), max_size=3))
def test_those_who_may_need_more_owners_are_found_without_looking_at_everybody(
    seconds: list[dict[str, tuple[int, int, int]]], share: float, named: set[str]
) -> None:
    """Long enough for the traces to be cleared now and then."""
    demand = NOTHING
    for second, adapters in enumerate(seconds):
        demand = fold(demand, said(second, **adapters), float(second), POLICY)
    for now_s in (float(len(seconds)), len(seconds) + 6.0):
        everybody = asked(demand, POOL, now_s, POLICY)
        few = asked(demand, POOL, now_s, POLICY, Only(share, named))
        assert few == {name: everybody[name] for name in few}
        assert {name for name, rate in everybody.items() if rate.tokens_per_s > share or name in named} <= few.keys()


@given(SAID)
def test_what_an_answer_has_is_kept_up_with_every_message(seconds: list[dict[str, tuple[int, int, int]]]) -> None:
    demand = NOTHING
    for second, adapters in enumerate(seconds):
        demand = fold(demand, said(second, **adapters), float(second), POLICY)
    whole = answers_of(demand.traces.get(POOL, {}).values())
    kept = demand.answers.get(POOL, Answers())
    assert (kept.tokens, kept.answers) == pytest.approx((whole.tokens, whole.answers), abs=1e-9)
