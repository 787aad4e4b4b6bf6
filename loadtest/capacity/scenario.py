"""A plan's fleet as the twin simulates it."""

from __future__ import annotations

from functools import partial

from loadtest.capacity.plan import Plan
from loadtest.capacity.trial import Trial
from loadtest.twin.scenario import PoolShape, Scenario
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import StepTable, Timing
from loadtest.workloads.calls import calls
from loadtest.workloads.shape import Fixed, Lengths, TrafficShape, Zipf

_SPARE = 1.5
"""RAM and disk over what a replica of the planned fleet owns: a smaller fleet's replicas own more."""
_ALL_AT_ONCE = 1e12
"""Prompt tokens a second where prompts are in the measured rate already."""


def traffic(plan: Plan, trial: Trial) -> TrafficShape:
    asked = plan.question
    even = Lengths(prompt=Fixed(tokens=round(asked.prompt_tokens)), output=Fixed(tokens=round(asked.output_tokens)))
    return TrafficShape(
        customers=asked.adapters,
        rate_per_s=asked.rate_per_s,
        for_s=trial.for_s,
        seed=trial.seed,
        popularity=Zipf(s=asked.zipf),
        lengths=trial.lengths or even,
    )


def scenario(plan: Plan, replicas: int, trial: Trial) -> Scenario:
    """`replicas` of the plan's kind under its traffic. Every adapter owner of the planned fleet has RAM for what it
    owns, and half as much again."""
    asked = plan.question
    return Scenario(
        calls=partial(calls, traffic(plan, trial)),
        customers=asked.adapters,
        for_s=trial.for_s,
        warm_up_s=trial.warm_up_s,
        seed=trial.seed,
        pools=(pool(plan, replicas),),
        timing=timing(plan),
        ttft_objective_s=asked.objective_s,
        usd_per_replica_hour=asked.usd_per_gpu_hour,
    )


def pool(plan: Plan, replicas: int) -> PoolShape:
    asked = plan.question
    held_bytes = int(_SPARE * plan.owned * plan.adapter_bytes)
    return PoolShape(
        replicas=replicas,
        slots=plan.slots,
        rank_limit=asked.rank,
        rank=asked.rank,
        adapter_bytes=plan.adapter_bytes,
        ram_bytes=held_bytes,
        disk_bytes=4 * held_bytes,
        batch=BatchShape(
            max_rows=asked.rows, chunk_tokens=asked.chunk_tokens, kv_tokens=asked.rows * asked.context_tokens
        ),
    )


def timing(plan: Plan) -> Timing:
    asked = plan.question
    if asked.replica_tokens_per_s is None:
        steps = StepTable(base_s=asked.step_s, prefill_tokens_per_s=asked.prefill_tokens_per_s)
    else:
        steps = StepTable(base_s=asked.rows / asked.replica_tokens_per_s, prefill_tokens_per_s=_ALL_AT_ONCE)
    return Timing(
        steps=steps,
        store_bytes_per_s=asked.store_bytes_per_s,
        disk_bytes_per_s=asked.disk_bytes_per_s,
        slot_bytes_per_s=asked.gpu_link_bytes_per_s,
    )
