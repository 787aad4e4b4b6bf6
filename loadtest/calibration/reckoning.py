"""From what was observed of a fleet to the timing of its twin."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from loadtest.calibration.company import Met, fit_beside, fit_line, met
from loadtest.calibration.fitting import apart, decodings, firsts, fit_steps
from loadtest.calibration.hops import fit_ways
from loadtest.calibration.measuring import Probed, Run
from loadtest.calibration.overheads import Between, fit_overheads, split
from loadtest.twin.measured import Measured
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import MeasuredTable, Timing


def reckon(runs: Sequence[Run], probed: Probed, batch: BatchShape, conditions: dict[str, str]) -> Measured:
    """Raises TooLittleSeen."""
    seen, chunk_tokens = [each for run in runs for each in run.seen], batch.chunk_tokens
    runs_seen = [some for run in runs for some in (run.seen, *([each] for each in run.alone), *run.beside)]
    alone = [each for some in runs_seen for each in apart(some)]
    found = [each for some in runs_seen for each in decodings(some, chunk_tokens)]
    steps = fit_steps(found, firsts(alone, chunk_tokens))
    table = steps.table(chunk_tokens)
    in_operation = [each for run in runs for each in met(run.seen, table, chunk_tokens)]
    beside_s = fit_beside(in_operation + [each for run in runs for each in _in_company(run, table, chunk_tokens)])
    everybody = [each for some in runs_seen for each in met(some, table, chunk_tokens)]
    looked_at = in_operation if len(in_operation) >= _ENOUGH else everybody
    overheads = fit_overheads([each.overhead_s - each.beside * beside_s for each in looked_at])
    parts = split(overheads, seen, _between(runs, probed))
    ways = fit_ways(probed.hops)
    probe_s = table.step_s(1, _PROBE_TOKENS, 1)
    timing = Timing(
        steps=table,
        store_latency_s=ways["disk"].latency_s,
        store_bytes_per_s=ways["disk"].bytes_per_s,
        disk_latency_s=ways["ram"].latency_s,
        disk_bytes_per_s=ways["ram"].bytes_per_s,
        slot_latency_s=max(0.0, ways["gpu"].latency_s - probe_s),
        slot_bytes_per_s=ways["gpu"].bytes_per_s,
        jitter_s=overheads.jitter_s,
        in_line=True,
        beside_s=beside_s,
        **parts,
    )
    volleys = [each for run in runs for each in run.volleys]
    timing = msgspec.structs.replace(timing, line_s=fit_line(volleys, timing, batch))
    said = {
        "requests": str(len(seen)),
        "requests that met an idle replica": str(len(in_operation)),
        "overheads until the first token": f"{1000 * overheads.mean_s:.2f} ms",
    }
    return Measured(timing=timing, batch=batch, restart_s=probed.restart_s, conditions={**conditions, **said})


def _in_company(run: Run, table: MeasuredTable, chunk_tokens: int) -> list[Met]:
    """Those asked while a long answer was given elsewhere; that one itself found a fleet that had nothing to do, and
    needed what requests need there."""
    return [each for some in run.beside for each in met(some, table, chunk_tokens) if each.beside]


def _between(runs: Sequence[Run], probed: Probed) -> Between:
    counted = [run.first_tokens for run in runs]
    seen = [each for run in runs for each in apart(run.seen)]
    after_gateway = [each.ttft_s - each.gateway_ttft_s for each in seen if each.ttft_s and each.gateway_ttft_s]
    return Between(
        in_worker_s=sum(each.sum_s for each in counted) / max(1.0, sum(each.count for each in counted)),
        after_gateway_s=max(0.0, fmean(after_gateway)) if after_gateway else 0.0,
        bus_s=probed.bus_s,
    )


_ENOUGH = 20
"""Requests that met an idle replica while the fleet was busy elsewhere: they need what requests need in operation."""
_PROBE_TOKENS = 4
"""A load ends with a step of the engine that proves it; the twin has that step of its own."""
