"""The fleets of the specification, as scenarios."""

from __future__ import annotations

import msgspec

from loadtest.twin.scenario import PoolShape, Scenario
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import StepTable, Timing
from loadtest.workloads.calls import calls, moves
from loadtest.workloads.shape import Fixed, Lengths, TrafficShape, Zipf

FLEET_A = PoolShape(batch=BatchShape(chunk_tokens=1_024))
"""The specification reckons with a prompt of 750 tokens in one step; the engines' own chunk of 512 makes two of it."""
FLEET_B = PoolShape(
    pool_id="llama-r16",
    replicas=40,
    slots=100,
    adapter_bytes=84_000_000,
    ram_bytes=200_000_000_000,
    disk_bytes=1_000_000_000_000,
    batch=BatchShape(max_rows=256, chunk_tokens=2_048, kv_tokens=320_000),
)
FLEET_B_STEPS = StepTable(base_s=0.012, row_s=0.00015, prefill_tokens_per_s=40_000.0)
"""About 5,000 tokens a second at 250 rows: what the specification says of an H100 at the objective."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a preset; None: what the specification says. Times in minutes, the warm-up included."""

    replicas: int | None = None
    rate_per_s: float | None = None
    adapters: int | None = None
    zipf: float | None = None
    minutes: float = 15.0
    warm_up_minutes: float = 5.0
    seed: int = 1


def fleet_a(size: Size) -> Scenario:
    """7B: 5,000 adapters, 40 requests/s of 750 + 250 tokens, 26 replicas."""
    shape = _traffic(size, TrafficShape(customers=5_000, rate_per_s=40.0, for_s=0.0))
    return _scenario(size, shape, FLEET_A, Timing())


def fleet_b(size: Size) -> Scenario:
    """8B: 2,000 adapters at Zipf 1.2, 500 requests/s × 300 output tokens, 40 replicas."""
    lengths = Lengths(prompt=Fixed(tokens=500), output=Fixed(tokens=300))
    whole = TrafficShape(customers=2_000, rate_per_s=500.0, for_s=0.0, popularity=Zipf(s=1.2), lengths=lengths)
    timing = Timing(steps=FLEET_B_STEPS, slot_bytes_per_s=25e9)
    return _scenario(size, _traffic(size, whole), FLEET_B, timing)


PRESETS = {"fleet-a": fleet_a, "fleet-b": fleet_b}


def _traffic(size: Size, whole: TrafficShape) -> TrafficShape:
    return msgspec.structs.replace(
        whole,
        customers=size.adapters or whole.customers,
        rate_per_s=size.rate_per_s or whole.rate_per_s,
        for_s=60.0 * size.minutes,
        popularity=whole.popularity if size.zipf is None else Zipf(s=size.zipf),
        seed=size.seed,
    )


def _scenario(size: Size, shape: TrafficShape, pool: PoolShape, timing: Timing) -> Scenario:
    return Scenario(
        calls=lambda: calls(shape),
        moves=(lambda: moves(shape)) if shape.churn else None,
        customers=shape.customers,
        for_s=shape.for_s,
        warm_up_s=60.0 * min(size.warm_up_minutes, size.minutes / 2),
        seed=size.seed,
        pools=(msgspec.structs.replace(pool, replicas=size.replicas or pool.replicas),),
        timing=timing,
    )
