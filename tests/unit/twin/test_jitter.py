"""Requests need different times on their way, as measured, and none overtakes another one to the same replica."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec
import pytest

from loadtest.twin.agenda import Agenda
from loadtest.twin.scenario import PoolShape, Scenario
from loadtest.twin.timing import StepTable, Timing
from loadtest.twin.twin import Twin
from loadtest.twin.way import Way
from loadtest.workloads.call import Call

STEADY = Timing(steps=StepTable(base_s=0.001), gateway_s=0.010, bus_s=0.0, worker_s=0.0, relay_s=0.0)
UNSTEADY = msgspec.structs.replace(STEADY, jitter_s=(-0.008, 0.0, 0.008))


def _ttfts_s(timing: Timing, apart_s: float, count: int = 200, tokens: int = 1) -> list[float]:
    calls = [Call(apart_s * at, 0, 0, 1, tokens, tokens, True) for at in range(count)]
    pool = PoolShape(replicas=1, slots=4, adapter_bytes=1_000)
    outcome = Twin(Scenario(calls=lambda: calls, customers=1, for_s=60.0, pools=(pool,), timing=timing)).run()
    assert outcome.broken == ()
    requests = sorted(outcome.requests, key=lambda each: each.arrived_s)
    assert [each.arrived_s for each in requests] == [call.at_s for call in calls]
    return [each.ttft_s or 0.0 for each in requests]


def _arrivals_s(timing: Timing, sent_s: Sequence[float], computing: Callable[[], int] = lambda: 0) -> list[float]:
    agenda, arrived_s = Agenda(), dict.fromkeys(range(len(sent_s)), 0.0)
    way = Way(timing, agenda, random.Random(0), computing)

    def arrive(at: int) -> None:
        arrived_s[at] = agenda.now_s

    for at, each_s in enumerate(sent_s):
        agenda.at(each_s, way.send, "r1", arrive, at)
    agenda.run(60.0)
    return list(arrived_s.values())


def test_requests_scatter_around_the_same_mean() -> None:
    steady_s, unsteady_s = _ttfts_s(STEADY, 0.1), _ttfts_s(UNSTEADY, 0.1)
    assert max(steady_s) - min(steady_s) < 0.001
    assert max(unsteady_s) - min(unsteady_s) > 0.015
    assert abs(fmean(unsteady_s) - fmean(steady_s)) < 0.0015


def test_none_overtakes_another() -> None:
    ttfts_s = _ttfts_s(UNSTEADY, 0.0001)
    first_at_s = [round(0.0001 * at + ttft_s, 9) for at, ttft_s in enumerate(ttfts_s)]
    assert first_at_s == sorted(first_at_s)


def test_none_overtakes_another_that_was_held_up_beside_who_computed() -> None:
    computing = iter([5, 0, 0])
    slower = msgspec.structs.replace(STEADY, beside_s=0.035)
    assert _arrivals_s(slower, (0.0, 0.001, 0.1), lambda: next(computing)) == pytest.approx([0.045, 0.045, 0.110])


def test_requests_that_come_together_wait_for_each_other_where_they_pass_in_line() -> None:
    in_line = msgspec.structs.replace(STEADY, worker_s=0.004, in_line=True)
    apart_s, together_s = _ttfts_s(in_line, 0.1), _ttfts_s(in_line, 0.0, count=20)
    assert max(apart_s) - min(apart_s) < 0.001
    assert abs(apart_s[0] - together_s[0]) < 1e-9
    assert max(together_s) - min(together_s) > 18 * 0.010


def test_who_comes_together_gets_on_together_where_it_was_measured_how_they_hold_each_other_up() -> None:
    measured = msgspec.structs.replace(STEADY, worker_s=0.020, in_line=True, line_s=0.004)
    assert _arrivals_s(measured, (0.0, 1.0)) == pytest.approx([0.030, 1.030])
    assert _arrivals_s(measured, (0.0,) * 4) == pytest.approx([0.026 + 4 * 0.004] * 4)
    # Each has half of the processor while both are there: 2 ms alone, 2 x 2 ms shared, and 2 ms alone again.
    assert _arrivals_s(measured, (0.0, 0.002)) == pytest.approx([0.026 + 0.006, 0.026 + 0.008])
    nothing = msgspec.structs.replace(measured, line_s=0.0)
    assert _arrivals_s(nothing, (0.0,) * 4) == pytest.approx([0.030] * 4)


def test_no_more_of_a_way_is_shared_than_there_is() -> None:
    too_long = msgspec.structs.replace(STEADY, in_line=True, line_s=0.025)
    assert _arrivals_s(too_long, (0.0,)) == pytest.approx([0.010])
    assert _arrivals_s(too_long, (0.0, 0.0)) == pytest.approx([0.020, 0.020])


def test_a_stream_of_requests_shares_without_end_and_in_order() -> None:
    measured = msgspec.structs.replace(STEADY, in_line=True, line_s=0.004)
    sent_s = tuple(0.003 * at for at in range(50))
    arrived_s = _arrivals_s(measured, sent_s)
    assert arrived_s == sorted(arrived_s)
    assert arrived_s[-1] == pytest.approx(0.006 + 50 * 0.004)


@pytest.mark.parametrize(("computing", "later_s"), [(0, 0.0), (1, 0.007), (5, 0.007)])
def test_the_way_is_longer_once_however_many_replicas_compute(computing: int, later_s: float) -> None:
    slower = msgspec.structs.replace(STEADY, beside_s=0.007)
    assert _arrivals_s(slower, (0.0,), lambda: computing) == pytest.approx([0.010 + later_s])


def test_the_way_is_longer_while_a_replica_computes() -> None:
    slower = msgspec.structs.replace(STEADY, beside_s=0.007)
    steady_s, slower_s = _ttfts_s(STEADY, 0.1, tokens=80), _ttfts_s(slower, 0.1, tokens=80)
    alone_s, beside_s = _ttfts_s(slower, 0.1), _ttfts_s(slower, 0.05, tokens=80)
    assert slower_s == pytest.approx(steady_s)
    assert alone_s == pytest.approx(_ttfts_s(STEADY, 0.1))
    assert beside_s[1:] == pytest.approx([beside_s[0] + 0.007] * (len(beside_s) - 1), abs=0.0015)
