"""From what was observed of a fleet to the timing of its twin."""

from __future__ import annotations

from statistics import fmean

from loadtest.calibration.fitting import decodings, firsts, fit_steps
from loadtest.calibration.hops import fit_ways
from loadtest.calibration.measuring import Observed
from loadtest.calibration.overheads import Between, fit_overheads, split
from loadtest.twin.measured import Measured
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import Timing


def reckon(observed: Observed, batch: BatchShape, conditions: dict[str, str]) -> Measured:
    """Raises TooLittleSeen."""
    seen = observed.seen
    steps = fit_steps(decodings(seen), firsts(seen, batch.chunk_tokens))
    table = steps.table(batch.chunk_tokens)
    overheads = fit_overheads(seen, table, batch.chunk_tokens)
    after_gateway = [each.ttft_s - each.gateway_ttft_s for each in seen if each.ttft_s and each.gateway_ttft_s]
    between = Between(
        in_worker_s=observed.worker_first_s,
        after_gateway_s=max(0.0, fmean(after_gateway)) if after_gateway else 0.0,
        bus_s=observed.bus_s,
    )
    ways = fit_ways(observed.hops)
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
        **split(overheads, seen, between),
    )
    found = {
        "requests": str(len(seen)),
        "requests that met an idle replica": str(overheads.requests),
        "overheads until the first token": f"{1000 * overheads.mean_s:.2f} ms",
    }
    return Measured(timing=timing, batch=batch, restart_s=observed.restart_s, conditions={**conditions, **found})


_PROBE_TOKENS = 4
"""A load ends with a step of the engine that proves it; the twin has that step of its own."""
