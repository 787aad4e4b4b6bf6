"""From what requests saw to what stands between a step and its client: gateway, bus, tokenizer, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from loadtest.calibration.seen import Seen
from loadtest.twin.figures import nearest
from loadtest.twin.timing import MeasuredTable, pairs

MARKS = 60
"""Of them some must lie beyond the percentile that is asked for: with 20 the last one was every 20th draw, and it alone
was the twin's 95th percentile, or the one before it."""


class Overheads(msgspec.Struct, frozen=True, kw_only=True):
    """What comes on top of steps until a request's first token. `jitter_s` are quantiles, equally far apart, of what
    single requests needed beyond the mean."""

    mean_s: float
    jitter_s: tuple[float, ...]


class Between(msgspec.Struct, frozen=True, kw_only=True):
    """Means: from a request's arrival at a worker to its first token there; from that token's passing the gateway to
    the client; a message's way over the bus."""

    in_worker_s: float
    after_gateway_s: float
    bus_s: float


def fit_overheads(found_s: Sequence[float]) -> Overheads:
    """Of what single requests needed, at least one."""
    ranked = sorted(found_s)
    marks = [nearest(ranked, (at + 0.5) / MARKS) for at in range(MARKS)]
    mean_s = max(0.0, fmean(marks))
    return Overheads(mean_s=mean_s, jitter_s=tuple(each - mean_s for each in marks))


def prefill_s(prompt_tokens: int, table: MeasuredTable, chunk_tokens: int) -> float:
    """A prompt's steps on a replica that does nothing else."""
    whole, rest = divmod(prompt_tokens, chunk_tokens)
    pieces = [chunk_tokens] * whole + [rest] * (rest > 0)
    steps_s = sum(table.step_s(1, piece if piece > 1 else 0, 1) for piece in pieces)
    return steps_s + table.pair_s * pairs(0, prompt_tokens)


def split(overheads: Overheads, seen: Sequence[Seen], between: Between) -> dict[str, float]:
    """The parts of `Timing` that add up to the mean overhead, none below zero: what the worker's own figures leave of
    it is the worker's, and of the rest the gateway's what neither the bus nor the way behind the gateway needs."""
    ttft_s = fmean(each.ttft_s or 0.0 for each in seen if each.tier == "gpu" and each.first_s is not None)
    around_s = min(max(ttft_s - between.in_worker_s, 0.0), overheads.mean_s)
    bus_s = min(between.bus_s, around_s / 2)
    relay_s = min(between.after_gateway_s, around_s - 2 * bus_s)
    return {
        "bus_s": bus_s,
        "relay_s": relay_s,
        "gateway_s": around_s - 2 * bus_s - relay_s,
        "worker_s": overheads.mean_s - around_s,
    }
