"""From what requests saw to how long a step takes.

A request's tokens come one a step, so the time from its first to its last token is the sum of its steps: each takes as
long as a step with that many rows takes, and longer by the prompts that are computed in it. Many requests say many such
sums, and least squares say which times explain them best. Nothing of this looks into a replica, so it fits any engine.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from loadtest.calibration.least_squares import LEAST_S, NORMAL, steady
from loadtest.calibration.prompts import PromptTimes, TooLittleSeen, pieces_of
from loadtest.calibration.seen import Seen
from loadtest.twin.timing import MeasuredTable, pairs

KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Rows at which the time of a step is sought; it is linear in between."""
ENOUGH = 6.0
"""So many requests at least stand behind the time at a knot."""
LEAST_STEPS = 4
"""Of a request whose sum is looked at: a shorter one says more about its messages' way."""


IDLE_S = 0.005
"""So long before a request nobody else may have been on its replica: the end of a stream is told a moment later."""
APART_S = 0.020
"""So long before a request no other one was sent to the fleet."""


class Decoding(msgspec.Struct, frozen=True, kw_only=True):
    """One request from its first to its last token. On average `rows` were taken on its replica meanwhile, and
    `pieces` of others' prompts, of `prompt_tokens` and `prompt_pairs` in all, were computed there."""

    steps: int
    took_s: float
    rows: float
    pieces: int
    prompt_tokens: int
    prompt_pairs: float = 0.0


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """A step takes `step_s[i]` with `rows[i]`, and with a prompt in it as much more as `prompts` say that a step with
    one row does. `spread` is by how much of that whole answers are off: what makes one step slow mostly does so for a
    while."""

    rows: tuple[int, ...]
    step_s: tuple[float, ...]
    prompts: PromptTimes
    spread: float

    def table(self, chunk_tokens: int) -> MeasuredTable:
        """For an engine that computes at most so many tokens of prompts in a step."""
        axis = (0, 2, chunk_tokens)
        more_s = (0.0, *(self.prompts.work_s(1, tokens, 0.0) - self.step_s[0] for tokens in axis[1:]))
        lines = tuple(tuple(own_s + each for each in more_s) for own_s in self.step_s)
        return MeasuredTable(
            rows=self.rows, prefill_tokens=axis, mean_s=lines, pair_s=self.prompts.pair_s, spread=self.spread
        )


def decodings(seen: Sequence[Seen], chunk_tokens: int) -> list[Decoding]:
    """Of all requests that ended well at their first replica, beside all others there. An engine computes at most
    `chunk_tokens` of prompts in a step."""
    beside: dict[str, list[Seen]] = {}
    for each in seen:
        if each.first_s is not None:
            beside.setdefault(each.replica, []).append(each)
    whole = (each for each in seen if each.outcome == "ok" and each.attempts == 1 and each.first_s is not None)
    return [_decoding(each, beside[each.replica], chunk_tokens) for each in whole if each.tokens > LEAST_STEPS]


def lone(seen: Sequence[Seen]) -> list[Seen]:
    """Those that found their adapter in a slot, and nobody else on its replica until their first token."""
    beside: dict[str, list[Seen]] = {}
    for each in seen:
        beside.setdefault(each.replica, []).append(each)
    good = (each for each in seen if each.outcome == "ok" and each.tier == "gpu" and each.attempts == 1)
    return [
        each for each in good if not any(_meets(each, other) for other in beside[each.replica] if other is not each)
    ]


def apart(seen: Sequence[Seen]) -> list[Seen]:
    """Of those that were alone, whoever came apart from all others of the fleet: no gateway had two at once."""
    return [each for each in lone(seen) if not any(_comes_with(each, other) for other in seen if other is not each)]


def fit_steps(found: Sequence[Decoding], prompts: PromptTimes) -> Steps:
    """What explains the sums best. More rows never take less time: what is sought is by how much longer each knot takes
    than the one before it. In company prompts take longer than alone, and by how much of that is sought as well, so
    that it is not put down to rows. Raises TooLittleSeen."""
    if len(found) < 2 * ENOUGH:
        raise TooLittleSeen(f"{len(found)} answers do not tell how long a step takes.")
    knots = _knots([each.rows for each in found])
    work_s = np.array([prompts.work_s(each.pieces, each.prompt_tokens, each.prompt_pairs) for each in found])
    steps = np.array([each.steps for each in found], float)
    design = np.array([
        [each.steps - each.pieces, *(each.steps * share for share in _reached(each.rows, knots)[1:]), work]
        for each, work in zip(found, work_s, strict=True)
    ])  # fmt: skip
    took_s, own = np.array([each.took_s for each in found]), 1 / np.sqrt(steps)
    times_s = steady(design * own[:, None], (took_s - work_s) * own)
    explained_s = design @ times_s + work_s
    off = np.abs(took_s - explained_s) / np.maximum(explained_s, LEAST_S)
    return Steps(
        rows=knots,
        step_s=tuple(itertools.accumulate(map(float, times_s[:-1]))),
        prompts=prompts,
        spread=NORMAL * float(np.median(off)),
    )


def shares(rows: float, knots: Sequence[int]) -> list[float]:
    """How much of each knot's time makes the time at `rows`; beyond the last two they go on as they went."""
    at = min(max(bisect.bisect_right(knots, rows) - 1, 0), len(knots) - 2)
    beyond = (rows - knots[at]) / (knots[at + 1] - knots[at])
    found = [0.0] * len(knots)
    found[at], found[at + 1] = 1 - beyond, beyond
    return found


def _reached(rows: float, knots: Sequence[int]) -> list[float]:
    """How much of each knot's increase over the one before it is in the time at `rows`."""
    found = shares(rows, knots)
    return [sum(found[at:]) for at in range(len(found))]


def _decoding(each: Seen, beside: Sequence[Seen], chunk_tokens: int) -> Decoding:
    begins_s, ends_s = each.first_s or 0.0, each.ended_s
    steps, took_s = each.tokens - 1, max(ends_s - begins_s, 1e-9)
    others = [other for other in beside if other is not each and other.first_s is not None]
    shared_s = sum(max(0.0, min(ends_s, other.ended_s) - max(begins_s, other.first_s or 0.0)) for other in others)
    came = [other.prompt_tokens for other in others if begins_s < (other.first_s or 0.0) <= ends_s]
    pieces = sum(pieces_of(tokens, chunk_tokens) for tokens in came)
    rows = 1 + shared_s / took_s + pieces / steps
    return Decoding(
        steps=steps, took_s=took_s, rows=rows, pieces=pieces, prompt_tokens=sum(came),
        prompt_pairs=sum(pairs(0, tokens) for tokens in came),
    )  # fmt: skip


def _knots(rows: Sequence[float]) -> tuple[int, ...]:
    """Those from 1 on that enough requests speak of, the first two in any case."""
    highest = next((at for at, knot in enumerate(KNOTS) if knot >= max(rows)), len(KNOTS) - 1)
    known = KNOTS[: max(2, highest + 1)]
    while len(known) > 2:
        weight = [sum(each) for each in zip(*(shares(one, known) for one in rows), strict=True)]
        poor = [at for at in range(2, len(known)) if weight[at] < ENOUGH]
        if not poor:
            break
        known = (*known[: poor[-1]], *known[poor[-1] + 1 :])
    return known


def _comes_with(each: Seen, other: Seen) -> bool:
    return each.sent_s - APART_S < other.sent_s < (each.first_s or 0.0)


def _meets(each: Seen, other: Seen) -> bool:
    return other.sent_s < (each.first_s or 0.0) and other.ended_s > each.sent_s - IDLE_S
