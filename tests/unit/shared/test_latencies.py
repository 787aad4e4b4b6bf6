"""Percentiles of counts: right within the stated error, and the same whoever counted."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.latencies import ERROR, LEAST_S, MOST_S, bucket_of, quantile, seconds_of

times_s = st.floats(min_value=LEAST_S, max_value=MOST_S)


def counted(values: list[float]) -> Counter[int]:
    return Counter(map(bucket_of, values))


@given(st.lists(times_s, min_size=1), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_right_within_the_error(values: list[float], share: float) -> None:
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    found = quantile(counted(values), share)
    assert found is not None
    assert abs(found - exact) <= ERROR * exact * (1 + 1e-6)


@given(st.lists(times_s), st.lists(times_s))
def test_counts_add_up_whoever_counted(one: list[float], other: list[float]) -> None:
    assert quantile(counted(one) + counted(other), 0.95) == quantile(counted(one + other), 0.95)


def test_one_second_ends_a_bucket_and_what_is_beyond_the_ends_counts_as_they_do() -> None:
    assert (bucket_of(1.0), bucket_of(1.0001)) == (0, 1)
    assert bucket_of(0.0) == bucket_of(LEAST_S)
    assert bucket_of(1e9) == bucket_of(MOST_S)
    assert seconds_of(bucket_of(1e9)) == pytest.approx(MOST_S, rel=ERROR + 0.001)
    assert quantile({}, 0.95) is None
