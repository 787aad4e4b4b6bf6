"""From what was observed of a fleet to the timing of its twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import msgspec

from loadtest.calibration.climbing import climb_s
from loadtest.calibration.company import Scene, crowded, fit_beside, fit_crowd, fit_line, in_company, undisturbed_s
from loadtest.calibration.fitting import apart, decodings, fit_steps
from loadtest.calibration.hops import fit_ways
from loadtest.calibration.measuring import Probed, Run
from loadtest.calibration.overheads import Between, fit_overheads, split
from loadtest.calibration.prompts import fit_prompts
from loadtest.calibration.seen import Seen
from loadtest.twin.measured import Measured
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import MeasuredTable, Timing


def reckon(runs: Sequence[Run], probed: Probed, batch: BatchShape, conditions: dict[str, str]) -> Measured:
    """Raises TooLittleSeen."""
    looked_at = _look(runs, batch)
    timing = _in_company(looked_at, looked_at.timing(_between(runs, probed), probed), batch)
    overheads_s = timing.gateway_s + 2 * timing.bus_s + timing.worker_s + timing.relay_s
    said = {
        "requests": str(len(looked_at.seen)),
        "requests that met an idle fleet": str(len(looked_at.in_operation_s)),
        "overheads until the first token": f"{1000 * overheads_s:.2f} ms",
    }
    return Measured(timing=timing, batch=batch, restart_s=probed.restart_s, conditions={**conditions, **said})


@dataclass(frozen=True, kw_only=True)
class _LookedAt:
    """Of all runs: the steps' table, the requests of their workload, what those needed besides their steps who were
    undisturbed there and anywhere, scenes of company, and how long an adapter took from RAM into a slot, if that was
    seen."""

    table: MeasuredTable
    seen: list[Seen]
    in_operation_s: list[float]
    anywhere_s: list[float]
    volleys: list[list[Seen]]
    in_company: list[Scene]
    crowded: list[Scene]
    climb_s: float | None

    def timing(self, between: Between, probed: Probed) -> Timing:
        """Of requests that nobody is beside."""
        enough = len(self.in_operation_s) >= _ENOUGH
        overheads = fit_overheads(self.in_operation_s if enough else self.anywhere_s)
        ways = fit_ways(probed.hops)
        return Timing(
            steps=self.table,
            store_latency_s=ways["disk"].latency_s,
            store_bytes_per_s=ways["disk"].bytes_per_s,
            disk_latency_s=ways["ram"].latency_s,
            disk_bytes_per_s=ways["ram"].bytes_per_s,
            slot_latency_s=self.climb_s if self.climb_s is not None else self._ordered_s(ways["gpu"].latency_s),
            slot_bytes_per_s=ways["gpu"].bytes_per_s,
            jitter_s=overheads.jitter_s,
            in_line=True,
            **split(overheads, self.seen, between),
        )

    def _ordered_s(self, took_s: float) -> float:
        """Nobody waits for an operator's order, so it ends with a step of its own that proves the load; a request takes
        that proof with it into its first step."""
        return max(0.0, took_s - self.table.step_s(1, _PROBE_TOKENS, 1))


def _in_company(looked_at: _LookedAt, timing: Timing, batch: BatchShape) -> Timing:
    """With what requests cost each other, each part of it sought with the others as they are known by then."""
    for _ in range(_ROUNDS):
        timing = msgspec.structs.replace(timing, line_s=fit_line(looked_at.volleys, timing, batch))
        timing = msgspec.structs.replace(timing, crowd_share=fit_crowd(looked_at.crowded, timing, batch))
        timing = msgspec.structs.replace(timing, beside_s=fit_beside(looked_at.in_company, timing, batch))
    return timing


def _look(runs: Sequence[Run], batch: BatchShape) -> _LookedAt:
    chunk_tokens = batch.chunk_tokens
    scenes = [some for run in runs for some in (run.seen, *([each] for each in run.alone), *run.beside)]
    prompts = fit_prompts([each for run in runs for each in run.alone], chunk_tokens)
    steps = fit_steps([each for some in scenes for each in decodings(some, chunk_tokens)], prompts)
    table = steps.table(chunk_tokens)
    workloads = [run.seen for run in runs]
    questions = [some for run in runs for some in run.beside]
    return _LookedAt(
        table=table,
        seen=[each for some in workloads for each in some],
        in_operation_s=[each_s for some in workloads for each_s in undisturbed_s(some, table, chunk_tokens)],
        anywhere_s=[each_s for some in scenes for each_s in undisturbed_s(some, table, chunk_tokens)],
        volleys=[some for run in runs for some in run.volleys],
        in_company=[in_company(some) for some in workloads + questions],
        crowded=[crowded(some, chunk_tokens) for some in workloads + questions],
        climb_s=climb_s([each for run in runs for each in run.from_ram], [each for run in runs for each in run.alone]),
    )


def _between(runs: Sequence[Run], probed: Probed) -> Between:
    counted = [run.first_tokens for run in runs]
    seen = [each for run in runs for each in apart(run.seen)]
    after_gateway = [each.ttft_s - each.gateway_ttft_s for each in seen if each.ttft_s and each.gateway_ttft_s]
    return Between(
        in_worker_s=sum(each.sum_s for each in counted) / max(1.0, sum(each.count for each in counted)),
        after_gateway_s=max(0.0, fmean(after_gateway)) if after_gateway else 0.0,
        bus_s=probed.bus_s,
    )


_ROUNDS = 3
"""What the line, the crowd and the company cost is each sought with the others known."""
_ENOUGH = 20
"""Requests that met an idle fleet between others: they need what requests need in operation."""
_PROBE_TOKENS = 4
"""Of the step of the engine that proves a load; the twin has that step of its own."""
