"""Requests need different times on their way, as measured, and none overtakes another one to the same replica."""

from __future__ import annotations

import random
from statistics import fmean

import msgspec
import pytest

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
    way = Way(msgspec.structs.replace(STEADY, beside_s=0.007), random.Random(0), lambda: next(computing))
    due_s = [way.due_s(sent_s, "r1") for sent_s in (0.0, 0.001, 0.1)]
    assert due_s == pytest.approx([0.045, 0.045, 0.110])


def test_requests_that_come_together_wait_for_each_other_where_they_pass_in_line() -> None:
    in_line = msgspec.structs.replace(STEADY, worker_s=0.004, in_line=True)
    apart_s, together_s = _ttfts_s(in_line, 0.1), _ttfts_s(in_line, 0.0, count=20)
    assert max(apart_s) - min(apart_s) < 0.001
    assert abs(apart_s[0] - together_s[0]) < 1e-9
    assert max(together_s) - min(together_s) > 18 * 0.010


def test_how_long_a_request_holds_up_the_next_need_not_be_what_its_gateway_takes() -> None:
    in_line = msgspec.structs.replace(STEADY, in_line=True)
    held_up = msgspec.structs.replace(in_line, line_s=0.025)
    assert _ttfts_s(held_up, 0.1) == pytest.approx(_ttfts_s(STEADY, 0.1))
    first_s, *_, last_s = _ttfts_s(held_up, 0.0, count=20)
    assert last_s == pytest.approx(first_s + 19 * 0.025)
    at_once_s = _ttfts_s(msgspec.structs.replace(in_line, line_s=0.0), 0.0, count=20)
    assert max(at_once_s) == pytest.approx(min(at_once_s))


def test_where_it_was_measured_how_they_hold_each_other_up_nothing_else_of_the_way_does() -> None:
    slow_worker = msgspec.structs.replace(STEADY, worker_s=0.020, in_line=True, line_s=0.001)
    way = Way(slow_worker, random.Random(0), lambda: 0)
    assert [way.due_s(0.0, "r1") for _ in range(4)] == pytest.approx([0.030, 0.031, 0.032, 0.033])


def test_the_way_is_longer_for_each_replica_that_computes() -> None:
    slower = msgspec.structs.replace(STEADY, beside_s=0.007)
    steady_s, slower_s = _ttfts_s(STEADY, 0.1, tokens=80), _ttfts_s(slower, 0.1, tokens=80)
    alone_s, beside_s = _ttfts_s(slower, 0.1), _ttfts_s(slower, 0.05, tokens=80)
    assert slower_s == pytest.approx(steady_s)
    assert alone_s == pytest.approx(_ttfts_s(STEADY, 0.1))
    assert beside_s[1:] == pytest.approx([beside_s[0] + 0.007] * (len(beside_s) - 1), abs=0.0015)
