"""Small fleets for the twin: minutes of traffic in a second or two."""

from __future__ import annotations

from typing import Any

from loadtest.twin.outcome import Outcome
from loadtest.twin.scenario import Fault, PoolShape, Scenario
from loadtest.twin.sequence import BatchShape
from loadtest.twin.twin import Twin
from loadtest.workloads.calls import calls
from loadtest.workloads.shape import Lengths, LogNormal, TrafficShape

ADAPTER_BYTES = 80_000_000
SHORT = Lengths(prompt=LogNormal(mean=300, cap=1_500), output=LogNormal(mean=60, cap=300))

CRAMPED = PoolShape(
    replicas=3,
    slots=6,
    ram_bytes=25 * ADAPTER_BYTES,
    disk_bytes=60 * ADAPTER_BYTES,
    batch=BatchShape(max_rows=8, kv_tokens=6_000),
)
"""Fewer slots than adapters in use, and less memory than adapters: everything that can move moves."""


def traffic(**changes: Any) -> TrafficShape:
    return TrafficShape(**{"customers": 60, "rate_per_s": 5.0, "for_s": 40.0, "lengths": SHORT, **changes})


def scenario(shape: TrafficShape, pool: PoolShape = CRAMPED, **changes: Any) -> Scenario:
    plain = {"calls": lambda: calls(shape), "customers": shape.customers, "for_s": shape.for_s, "pools": (pool,)}
    return Scenario(**{**plain, **changes})  # type: ignore[arg-type]


def run(shape: TrafficShape, pool: PoolShape = CRAMPED, **changes: Any) -> Outcome:
    return Twin(scenario(shape, pool, **changes)).run()


EVERYTHING_GOES_WRONG = (
    Fault(kind="slow_store", at_s=3.0, for_s=12.0, factor=5.0),
    Fault(kind="lost_assignments", at_s=0.0, for_s=40.0, chance=0.3),
    Fault(kind="death", at_s=8.0, for_s=10.0),
    Fault(kind="lost_reports", at_s=14.0, for_s=10.0, chance=0.3),
    Fault(kind="lost_residency", at_s=14.0, for_s=15.0, chance=0.3),
    Fault(kind="pause", at_s=20.0, for_s=5.0, replica="replica-01"),
    Fault(kind="placement_pause", at_s=18.0, for_s=15.0),
    Fault(kind="second_placement", at_s=22.0),
    Fault(kind="stale_reports", at_s=30.0, for_s=4.0, factor=2.0),
)
