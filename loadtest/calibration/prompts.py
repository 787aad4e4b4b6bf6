"""What a prompt takes, from requests that had the fleet for themselves.

A lone request's time to first token is what stands between, which is the same for all, and its prompt: so much for each
step that computes of it, for each token, and for each pair of a token and one before it. Requests of a few lengths,
many of each, say how much; that a step takes at least what it takes without a prompt, their own answers say. Of each
length the median counts: one request in ten meets something else that the machine does, and none is ever too early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import msgspec
import numpy as np

from loadtest.calibration.least_squares import not_negative
from loadtest.calibration.seen import Seen
from loadtest.twin.timing import pairs

LENGTHS, EACH = 4, 3
"""So many lengths, and of each so many requests, are needed at least."""
_ALIKE = 1.1
"""Prompts are of one length if the longer has no more than so many times the tokens of the shorter."""


class TooLittleSeen(ValueError):
    """The requests do not say what was asked; the text says what lacks."""


class PromptTimes(msgspec.Struct, frozen=True, kw_only=True):
    """`piece_s`: a step with one row that computes of a prompt, without what it takes for its tokens and pairs."""

    piece_s: float
    token_s: float
    pair_s: float

    def work_s(self, pieces: int, tokens: float, token_pairs: float) -> float:
        return pieces * self.piece_s + tokens * self.token_s + token_pairs * self.pair_s


def pieces_of(prompt_tokens: int, chunk_tokens: int) -> int:
    """How many steps compute of it if it has them for itself."""
    return -(-prompt_tokens // chunk_tokens)


def fit_prompts(alone: Sequence[Seen], chunk_tokens: int) -> PromptTimes:
    """Raises TooLittleSeen. An answer of a single token does not say how long a step takes, and does not count."""
    whole = [each for each in alone if each.step_s is not None]
    lengths = [some for some in _by_length(whole) if len(some) >= EACH]
    if len(lengths) < LENGTHS:
        raise TooLittleSeen(f"{len(lengths)} lengths of lone prompts do not tell how long a prompt takes.")
    sizes = [round(median(each.prompt_tokens for each in some)) for some in lengths]
    ttfts_s = np.array([median(each.ttft_s or 0.0 for each in some) for some in lengths])
    step_s = median(each.step_s or 0.0 for each in whole)
    steps = np.array([pieces_of(size, chunk_tokens) for size in sizes])
    design = np.array([[1.0, of, size, pairs(0, size)] for of, size in zip(steps, sizes, strict=True)])
    # A long time scatters by more than a short one, so what counts is by which share each is missed.
    found = not_negative(design / ttfts_s[:, None], 1 - steps * step_s / ttfts_s)
    _, longer_s, token_s, pair_s = (float(each) for each in found)
    return PromptTimes(piece_s=step_s + longer_s, token_s=token_s, pair_s=pair_s)


def _by_length(alone: Sequence[Seen]) -> Iterator[list[Seen]]:
    some: list[Seen] = []
    for each in sorted(alone, key=lambda seen: seen.prompt_tokens):
        if some and each.prompt_tokens > _ALIKE * some[0].prompt_tokens:
            yield some
            some = []
        some.append(each)
    if some:
        yield some
