"""From what was observed of a fleet to the timing of its twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import msgspec

from loadtest.calibration.climbing import climb_s
from loadtest.calibration.company import Met, fit_beside, fit_crowd, fit_line, met
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
    timing = looked_at.timing(_between(runs, probed), probed)
    for _ in range(_ROUNDS):
        crowd_share = fit_crowd(looked_at.crowded, timing, batch)
        timing = looked_at.timing(_between(runs, probed), probed, crowd_share)
    volleys = [each for run in runs for each in run.volleys]
    timing = msgspec.structs.replace(timing, line_s=fit_line(volleys, timing, batch))
    overheads_s = timing.gateway_s + 2 * timing.bus_s + timing.worker_s + timing.relay_s
    said = {
        "requests": str(len(looked_at.seen)),
        "requests that met an idle replica": str(len(looked_at.in_operation)),
        "overheads until the first token": f"{1000 * overheads_s:.2f} ms",
    }
    return Measured(timing=timing, batch=batch, restart_s=probed.restart_s, conditions={**conditions, **said})


@dataclass(frozen=True, kw_only=True)
class _LookedAt:
    """Of all runs: the steps' table, the requests of their workload, whoever had a replica for itself there, elsewhere,
    and beside a long answer, the scenes in which a prompt of several steps came beside others, and how long an adapter
    took from RAM into a slot, if that was seen."""

    table: MeasuredTable
    seen: list[Seen]
    in_operation: list[Met]
    everybody: list[Met]
    beside: list[Met]
    crowded: list[list[Seen]]
    climb_s: float | None

    def timing(self, between: Between, probed: Probed, crowd_share: float = 0.0) -> Timing:
        """If a prompt takes so much longer for each other replica that computes."""
        beside_s = fit_beside(self.in_operation + self.beside, crowd_share)
        lone = self.in_operation if len(self.in_operation) >= _ENOUGH else self.everybody
        overheads = fit_overheads([each.without_s(crowd_share) - each.beside * beside_s for each in lone])
        ways = fit_ways(probed.hops)
        probe_s = self.table.step_s(1, _PROBE_TOKENS, 1)
        return Timing(
            steps=self.table,
            store_latency_s=ways["disk"].latency_s,
            store_bytes_per_s=ways["disk"].bytes_per_s,
            disk_latency_s=ways["ram"].latency_s,
            disk_bytes_per_s=ways["ram"].bytes_per_s,
            slot_latency_s=max(0.0, (self.climb_s or ways["gpu"].latency_s) - probe_s),
            slot_bytes_per_s=ways["gpu"].bytes_per_s,
            jitter_s=overheads.jitter_s,
            in_line=True,
            beside_s=beside_s,
            crowd_share=crowd_share,
            **split(overheads, self.seen, between),
        )


def _look(runs: Sequence[Run], batch: BatchShape) -> _LookedAt:
    chunk_tokens = batch.chunk_tokens
    scenes = [some for run in runs for some in (run.seen, *([each] for each in run.alone), *run.beside)]
    prompts = fit_prompts([each for run in runs for each in run.alone], chunk_tokens)
    steps = fit_steps([each for some in scenes for each in decodings(some, chunk_tokens)], prompts)
    table = steps.table(chunk_tokens)
    return _LookedAt(
        table=table,
        seen=[each for run in runs for each in run.seen],
        in_operation=[each for run in runs for each in met(run.seen, table, chunk_tokens)],
        everybody=[each for some in scenes for each in met(some, table, chunk_tokens)],
        beside=[each for run in runs for each in _in_company(run, table, chunk_tokens)],
        crowded=[some for run in runs for some in run.beside if some[-1].prompt_tokens > chunk_tokens],
        climb_s=climb_s([each for run in runs for each in run.from_ram], [each for run in runs for each in run.alone]),
    )


def _in_company(run: Run, table: MeasuredTable, chunk_tokens: int) -> list[Met]:
    """Those asked briefly while a long answer was given elsewhere; that one itself found a fleet that had nothing to
    do, and needed what requests need there."""
    questions = [some for some in run.beside if some[-1].prompt_tokens <= chunk_tokens]
    return [each for some in questions for each in met(some, table, chunk_tokens) if each.beside]


def _between(runs: Sequence[Run], probed: Probed) -> Between:
    counted = [run.first_tokens for run in runs]
    seen = [each for run in runs for each in apart(run.seen)]
    after_gateway = [each.ttft_s - each.gateway_ttft_s for each in seen if each.ttft_s and each.gateway_ttft_s]
    return Between(
        in_worker_s=sum(each.sum_s for each in counted) / max(1.0, sum(each.count for each in counted)),
        after_gateway_s=max(0.0, fmean(after_gateway)) if after_gateway else 0.0,
        bus_s=probed.bus_s,
    )


_ROUNDS = 2
"""What a crowd costs and what stands between are each sought with the other one known."""
_ENOUGH = 20
"""Requests that met an idle replica while the fleet was busy elsewhere: they need what requests need in operation."""
_PROBE_TOKENS = 4
"""A load ends with a step of the engine that proves it; the twin has that step of its own."""
