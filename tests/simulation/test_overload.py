"""Far more requests than a fleet can answer: as many as it can are answered in time, others are told at once."""

from __future__ import annotations

from functools import cache

import pytest

from loadtest.twin.figures import nearest
from loadtest.twin.outcome import Answered
from loadtest.twin.scenario import PoolShape
from loadtest.twin.sequence import BatchShape
from loadtest.workloads.popularity import Zipf
from loadtest.workloads.shape import Lengths, LogNormal
from tests.simulation.twin_fleets import ADAPTER_BYTES, run, traffic

CAPACITY_PER_S = 15.0
"""About what two replicas can answer: 60 tokens at 640 tokens/s, and 300 of prompt at 8,000."""
OBJECTIVE_S = 1.0
FROM_S, TO_S = 10.0, 40.0
FLEET = PoolShape(replicas=2, slots=40, ram_bytes=60 * ADAPTER_BYTES, batch=BatchShape(max_rows=32, kv_tokens=64_000))
UNEVEN = Lengths(prompt=LogNormal(mean=300, cap=1_500), output=LogNormal(mean=60, cap=300))


@cache
def answered(times: float, *, to_s: float = TO_S, sheds: bool = True) -> list[Answered]:
    """All requests of half a minute at so many times the capacity, which began all at once."""
    shape = traffic(
        customers=40, rate_per_s=times * CAPACITY_PER_S, for_s=to_s, lengths=UNEVEN, popularity=Zipf(s=1.0)
    )  # fmt: skip
    return [each for each in run(shape, FLEET, sheds=sheds).requests if each.arrived_s >= FROM_S]


def goodput_per_s(requests: list[Answered], to_s: float = TO_S) -> float:
    ttfts_s = (each.ttft_s for each in requests if each.outcome == "ok")
    return sum(ttft_s is not None and ttft_s <= OBJECTIVE_S for ttft_s in ttfts_s) / (to_s - FROM_S)


@pytest.mark.parametrize("times", [2.0, 3.0])
def test_beyond_capacity_as_many_are_answered_in_time_as_at_it(times: float) -> None:
    requests = answered(times)
    assert goodput_per_s(requests) >= 0.9 * goodput_per_s(answered(1.0))
    ttfts_s = sorted(each.ttft_s for each in requests if each.ttft_s is not None)
    assert nearest(ttfts_s, 0.95) <= OBJECTIVE_S


def test_who_is_sent_away_hears_of_it_within_the_objective() -> None:
    waited_s = sorted(each.ended_s - each.arrived_s for each in answered(3.0) if each.outcome != "ok")
    assert nearest(waited_s, 0.99) <= OBJECTIVE_S


def test_without_shedding_nobody_would_be_in_time() -> None:
    """What the tests above are for: they would fail. The queue is long enough soon, and takes long to play."""
    to_s = 15.0
    assert goodput_per_s(answered(3.0, to_s=to_s, sheds=False), to_s) < 0.2 * goodput_per_s(answered(1.0))
