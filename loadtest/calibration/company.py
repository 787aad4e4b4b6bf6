"""What requests cost each other that share a fleet's processors, besides their steps.

Alone, a request uses one processor after the other: client, gateway, bus and worker have all that they can use. In
company they have not, and what it does to a first token is seen from outside in two ways. Of a volley, requests sent at
one moment, the last first token says how long each holds up the next. And a request that comes while another replica
computes, and has its own for itself, says what it costs that a processor is taken.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean, median

import msgspec

from loadtest.calibration.fitting import apart
from loadtest.calibration.overheads import overhead_s
from loadtest.calibration.seen import Seen
from loadtest.twin import sequence
from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import MeasuredTable, Timing
from loadtest.twin.way import Way

ENOUGH = 6
"""Requests that must have met company, and as many that have not."""
_SEEDS = range(8)
_HALVINGS = 16
_OVER_S = 3_600.0
"""By then the last token of a volley has come."""


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """A request that had its replica for itself: what it needed besides its steps until its first token, and how many
    other replicas computed as it was sent."""

    overhead_s: float
    beside: int


def met(seen: Sequence[Seen], table: MeasuredTable, chunk_tokens: int) -> list[Met]:
    """Of all requests of one run that had their replica for themselves, and came apart from all others."""
    return [
        Met(overhead_s=overhead_s(each, table, chunk_tokens), beside=len(_computing(each, seen)))
        for each in apart(seen)
    ]


def fit_beside(found: Sequence[Met]) -> float:
    """How much longer the way is for each replica that computes; 0 if too few requests tell."""
    in_company = [each for each in found if each.beside]
    undisturbed = [each.overhead_s for each in found if not each.beside]
    if min(len(in_company), len(undisturbed)) < ENOUGH:
        return 0.0
    longer_s = median(each.overhead_s for each in in_company) - median(undisturbed)
    return max(0.0, longer_s / fmean(each.beside for each in in_company))


def fit_line(volleys: Sequence[Sequence[Seen]], timing: Timing, shape: BatchShape) -> float | None:
    """The `line_s` with which the twin's own way and steps give the last first token of a volley as late as it came;
    None if there was no volley."""
    if not volleys:
        return None
    wanted_s = median(max(each.ttft_s or 0.0 for each in volley) for volley in volleys)
    low_s, high_s = 0.0, wanted_s
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        tried = msgspec.structs.replace(timing, line_s=middle_s)
        late = median(_last_s(volley, tried, shape, seed) for volley in volleys for seed in _SEEDS) > wanted_s
        low_s, high_s = (low_s, middle_s) if late else (middle_s, high_s)
    return low_s


def _computing(each: Seen, seen: Sequence[Seen]) -> set[str]:
    """The other replicas that had given a first token and not yet a last one."""
    return {
        other.replica
        for other in seen
        if other.replica != each.replica and other.first_s is not None and other.first_s < each.sent_s < other.ended_s
    }


def _last_s(volley: Sequence[Seen], timing: Timing, shape: BatchShape, seed: int) -> float:
    """The latest first token of the same requests on the twin's replicas, since the volley was sent."""
    agenda, draw, firsts_s = Agenda(), random.Random(seed), [0.0]

    def on_step(first: list[sequence.Sequence], _: list[sequence.Sequence]) -> None:
        firsts_s.extend([agenda.now_s] * bool(first))

    names = sorted({each.replica for each in volley})
    batches = {name: Batch(shape, timing.steps, agenda, on_step, draw) for name in names}
    way = Way(timing, draw, lambda: sum(batch.computes for batch in batches.values()))
    for each in volley:
        asked = sequence.Sequence(each.adapter, each.prompt_tokens, max(1, each.tokens))
        agenda.at(way.due_s(0.0, each.replica), batches[each.replica].submit, asked)
    agenda.run(_OVER_S)
    return max(firsts_s) + timing.bus_s + timing.relay_s
