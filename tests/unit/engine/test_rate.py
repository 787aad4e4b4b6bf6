"""Tokens per second over a sliding window."""

from __future__ import annotations

from services.replica_worker.engine.rate import RateMeter


def test_a_steady_rate_is_reported_as_it_is() -> None:
    meter = RateMeter(window_s=5.0)
    for tenth in range(100):
        meter.add(4, now_s=tenth / 10)
    assert meter.per_s(9.9) == 40.0


def test_an_idle_engine_falls_back_to_zero_by_itself() -> None:
    meter = RateMeter(window_s=5.0)
    meter.add(100, now_s=0.0)
    assert meter.per_s(4.9) == 20.0
    assert meter.per_s(5.0) == 0.0
