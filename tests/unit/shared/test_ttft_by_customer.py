"""Which customers are shown by name, and that what is shown is theirs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.latencies import ERROR, bucket_of
from shared.ttft_by_customer import REST, TtftByCustomer, TtftPolicy

POLICY = TtftPolicy(busiest=3, latest=2, least=5)


def told(times_s: dict[str, list[float]], policy: TtftPolicy = POLICY) -> TtftByCustomer:
    customers = TtftByCustomer(policy)
    for adapter_id, own in times_s.items():
        for ttft_s in own:
            customers.first_token(adapter_id, ttft_s, 0.0)
    return customers


def test_shown_are_the_busiest_the_late_and_the_rest() -> None:
    busy = {f"busy-{n}": [0.1] * (20 + n) for n in range(4)}
    view = told({**busy, "late": [0.1] * 9 + [3.0], "few": [9.0]}).view(0.0)
    assert {one.adapter_id for one in view.named} == {"busy-1", "busy-2", "busy-3", "late"}
    assert view.named[0].adapter_id == "late"
    assert view.named[0].p95_s == pytest.approx(3.0, rel=ERROR)
    assert view.rest is not None
    assert (view.rest.adapter_id, view.rest.first_tokens) == (REST, 21)
    assert (view.customers, view.late) == (6, 1)


def test_one_slow_token_of_twenty_is_not_late_and_two_are() -> None:
    assert told({"a": [0.1] * 19 + [2.0]}).view(0.0).late == 0
    assert told({"a": [0.1] * 18 + [2.0] * 2}).view(0.0).late == 1


def test_a_first_token_at_the_objective_is_in_time() -> None:
    assert told({"a": [1.0] * 10}).view(0.0).late == 0
    assert told({"a": [1.01] * 10}).view(0.0).late == 1


def test_the_window_forgets() -> None:
    customers = told({"a": [5.0] * 10})
    customers.first_token("b", 0.1, 200.0)
    assert customers.view(300.0).late == 1
    after = customers.view(301.0)
    assert (after.customers, after.late, [one.adapter_id for one in after.named]) == (1, 0, ["b"])
    nothing = customers.view(600.0)
    assert (nothing.named, nothing.rest, nothing.customers) == ((), None, 0)


def test_beyond_what_is_kept_the_oldest_go_first() -> None:
    customers = told({"old": [0.1] * 6, "new": [0.1] * 6}, TtftPolicy(most_kept=8))
    assert {one.adapter_id: one.first_tokens for one in customers.view(0.0).named} == {"new": 6, "old": 2}


def test_labels_stay_few_with_twenty_thousand_customers_and_nobody_late_is_hidden() -> None:
    customers = TtftByCustomer(TtftPolicy())
    for turn in range(3):
        for number in range(20_000):
            customers.first_token(f"adapter-{number}", 0.2, float(turn))
    for _ in range(40):
        customers.first_token("adapter-19999", 4.0, 3.0)
    view = customers.view(4.0)
    assert view.customers == 20_000
    assert len(view.named) <= 60
    assert view.named[0].adapter_id == "adapter-19999"
    assert view.rest is not None
    assert view.rest.first_tokens + sum(one.first_tokens for one in view.named) == 60_040


moments = st.tuples(
    st.sampled_from("abcdef"), st.floats(0.001, 10.0), st.floats(0.0, 400.0)
)  # fmt: skip


@given(st.lists(moments))
def test_whatever_happens_the_view_is_that_of_the_window(happened: list[tuple[str, float, float]]) -> None:
    """Counted anew from the last five minutes, in one go."""
    happened.sort(key=lambda one: one[2])
    customers = TtftByCustomer(POLICY)
    for adapter_id, ttft_s, at_s in happened:
        customers.first_token(adapter_id, ttft_s, at_s)
    anew = TtftByCustomer(POLICY)
    for adapter_id, ttft_s, at_s in happened:
        if 400.0 - at_s <= 300.0:
            anew.add(adapter_id, bucket_of(ttft_s), 1, 400.0)
    found, expected = customers.view(400.0), anew.view(400.0)
    assert (found.customers, found.late) == (expected.customers, expected.late)
    assert (found.rest is None) == (expected.rest is None)
    assert sorted(one.first_tokens for one in found.named) == sorted(one.first_tokens for one in expected.named)
    assert all(one.p95_s >= other.p95_s for one, other in pairwise(found.named))
