"""Tokens served are divided by weight, and nobody saves up while it asks for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.core.fairness import TokenCounters


def test_a_charge_counts_less_for_a_larger_weight() -> None:
    counters = TokenCounters()
    counters.weigh("large", 2.0)
    for tenant in ("large", "small"):
        counters.charge(tenant, 100)
    assert (counters.of("large"), counters.of("small"), counters.of("new")) == (50.0, 100.0, 0.0)


def test_a_customer_that_comes_back_is_lifted_to_the_least_of_those_who_wait() -> None:
    counters = TokenCounters()
    for tenant in ("one", "two"):
        counters.enter(tenant)
    counters.charge("one", 500)
    counters.charge("two", 300)
    counters.enter("idle")
    assert counters.of("idle") == 300.0


def test_a_customer_that_is_ahead_is_not_set_back_by_leaving() -> None:
    counters = TokenCounters()
    counters.enter("behind")
    counters.enter("ahead")
    counters.charge("ahead", 900)
    counters.leave("ahead")
    counters.enter("ahead")
    assert counters.of("ahead") == 900.0


def test_after_a_pause_of_everybody_a_newcomer_begins_where_the_last_one_left() -> None:
    counters = TokenCounters()
    counters.enter("first")
    counters.charge("first", 700)
    counters.leave("first")
    counters.enter("second")
    assert counters.of("second") == 700.0


def test_who_still_waits_with_another_request_is_not_lifted() -> None:
    counters = TokenCounters()
    counters.enter("behind")
    counters.enter("ahead")
    counters.charge("ahead", 900)
    counters.enter("behind")
    counters.leave("behind")
    assert counters.of("behind") == 0.0


def test_a_weight_that_is_gone_is_one_again_and_none_is_too_small() -> None:
    counters = TokenCounters()
    counters.weigh("acme", 4.0)
    counters.forget_weight("acme")
    counters.weigh("nothing", 0.0)
    assert counters.weight("acme") == 1.0
    assert counters.weight("nothing") > 0.0


def test_leaving_without_having_entered_is_noticed() -> None:
    with pytest.raises(ValueError, match="no request of acme waits"):
        TokenCounters().leave("acme")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 400)), max_size=60))
def test_those_who_always_wait_stay_within_one_request_of_each_other(sizes: list[tuple[str, int]]) -> None:
    counters = TokenCounters()
    for tenant in "abc":
        counters.enter(tenant)
    for _, tokens in sizes:
        counters.charge(min("abc", key=counters.of), tokens)
    values = [counters.of(tenant) for tenant in "abc"]
    assert max(values) - min(values) <= max((tokens for _, tokens in sizes), default=0)
