"""From what requests saw to how long a step takes.

A request's tokens come one a step, so the time from its first to its last token is the sum of its steps: each takes as
long as a step with that many rows takes, and longer by the prompts that are computed in it. Many requests say many such
sums, and least squares say which times explain them best. Nothing of this looks into a replica, so it fits any engine.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from loadtest.calibration.seen import Seen
from loadtest.twin.timing import MeasuredTable, pairs

Floats: TypeAlias = npt.NDArray[np.float64]

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
_ROUNDS = 12
_LEAST_S = 1e-7
_FAR = 1.5
"""So many standard deviations."""
_NORMAL = 1.4826
"""A normal distribution's standard deviation over the median of what lies off its middle."""


class TooLittleSeen(ValueError):
    """The requests do not say what was asked; the text says what lacks."""


class Decoding(msgspec.Struct, frozen=True, kw_only=True):
    """One request from its first to its last token. On average `rows` were taken on its replica meanwhile, and
    `pieces` of others' prompts, of `prompt_tokens` and `prompt_pairs` in all, were computed there."""

    steps: int
    took_s: float
    rows: float
    pieces: int
    prompt_tokens: int
    prompt_pairs: float = 0.0


class First(msgspec.Struct, frozen=True, kw_only=True):
    """A request's time to its first token, with its prompt in so many steps that nobody shared."""

    pieces: int
    prompt_tokens: int
    took_s: float


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """A step takes `step_s[i]` with `rows[i]`, and with a prompt in it `prompt_s` more, `prompt_token_s` for each of
    its tokens, and `prompt_pair_s` for each pair of one of them and a token before it. `spread` is by how much of that
    whole answers are off: what makes one step slow mostly does so for a while."""

    rows: tuple[int, ...]
    step_s: tuple[float, ...]
    prompt_s: float
    prompt_token_s: float
    prompt_pair_s: float
    spread: float

    def table(self, chunk_tokens: int) -> MeasuredTable:
        """For an engine that computes at most so many tokens of prompts in a step."""
        axis = (0, 2, chunk_tokens)
        more_s = (0.0, *(self.prompt_s + self.prompt_token_s * tokens for tokens in axis[1:]))
        lines = tuple(tuple(own_s + each for each in more_s) for own_s in self.step_s)
        return MeasuredTable(
            rows=self.rows, prefill_tokens=axis, mean_s=lines, pair_s=self.prompt_pair_s, spread=self.spread
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


def firsts(alone: Sequence[Seen], chunk_tokens: int) -> list[First]:
    return [
        First(
            pieces=-(-each.prompt_tokens // chunk_tokens), prompt_tokens=each.prompt_tokens, took_s=each.ttft_s or 0.0
        )
        for each in alone
    ]


def fit_steps(found: Sequence[Decoding], first: Sequence[First]) -> Steps:
    """What explains both best: sums of steps, and the first tokens that an idle replica gave, of which each came after
    its own steps and the same overheads. The one counts for less, the more widely it scatters. More rows never take
    less time: what is sought is by how much longer each knot takes than the one before it. Raises TooLittleSeen."""
    if len(found) < 2 * ENOUGH or len(first) < 2 * ENOUGH:
        raise TooLittleSeen(
            f"{len(found)} answers, {len(first)} of them begun alone, do not tell how long a step takes."
        )
    knots = _knots([each.rows for each in found])
    sums = [
        [*(each.steps * share for share in _reached(each.rows, knots)),
         each.pieces, each.prompt_tokens, each.prompt_pairs, 0.0]
        for each in found
    ]  # fmt: skip
    alone = [
        [each.pieces, *[0.0] * (len(knots) - 1), each.pieces, each.prompt_tokens, pairs(0, each.prompt_tokens), 1.0]
        for each in first
    ]
    design, took_s = np.array(sums + alone), np.array([each.took_s for each in (*found, *first)])
    own = 1 / np.sqrt([*(each.steps for each in found), *(1 for _ in first)])
    times_s = _fitted(design * own[:, None], took_s * own, len(found))
    *longer_s, prompt_s, prompt_token_s, prompt_pair_s, _ = (float(each) for each in times_s)
    explained_s = (design @ times_s)[: len(found)]
    off = np.abs(took_s[: len(found)] - explained_s) / np.maximum(explained_s, _LEAST_S)
    return Steps(
        rows=knots,
        step_s=tuple(itertools.accumulate(longer_s)),
        prompt_s=prompt_s,
        prompt_token_s=prompt_token_s,
        prompt_pair_s=prompt_pair_s,
        spread=_NORMAL * float(np.median(off)),
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


def not_negative(design: Floats, wanted: Floats) -> Floats:
    """Least squares; whatever would be below zero is zero, and the others are sought anew."""
    free = np.ones(design.shape[1], bool)
    found = np.zeros(design.shape[1])
    while free.any():
        found[:] = 0
        found[free] = np.linalg.lstsq(design[:, free], wanted, rcond=None)[0]
        if (found >= 0).all():
            break
        free[int(found.argmin())] = False
    return np.maximum(found, 0.0)


def _decoding(each: Seen, beside: Sequence[Seen], chunk_tokens: int) -> Decoding:
    begins_s, ends_s = each.first_s or 0.0, each.ended_s
    steps, took_s = each.tokens - 1, max(ends_s - begins_s, 1e-9)
    others = [other for other in beside if other is not each and other.first_s is not None]
    shared_s = sum(max(0.0, min(ends_s, other.ended_s) - max(begins_s, other.first_s or 0.0)) for other in others)
    came = [other.prompt_tokens for other in others if begins_s < (other.first_s or 0.0) <= ends_s]
    pieces = sum(-(-tokens // chunk_tokens) for tokens in came)
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


def _fitted(design: Floats, wanted: Floats, sums: int) -> Floats:
    """The first `sums` rows scatter in one way, the others in another. A row that is far off for its kind, as when the
    machine did something else meanwhile, pulls no harder than one that is somewhat off."""
    weights = np.ones(len(wanted))
    for _ in range(_ROUNDS):
        times_s = not_negative(design * weights[:, None], wanted * weights)
        left_s = np.abs(wanted - design @ times_s)
        scatters_s = [max(_LEAST_S, _NORMAL * float(np.median(some))) for some in (left_s[:sums], left_s[sums:])]
        scatter_s = np.repeat(scatters_s, [sums, len(wanted) - sums])
        weights = np.sqrt(np.minimum(1.0, _FAR * scatter_s / np.maximum(left_s, _LEAST_S))) / scatter_s
    return times_s
