"""What is tried in the twin for every size of a fleet."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import msgspec

from loadtest.capacity.model import NotPlannable
from loadtest.capacity.question import Question
from loadtest.workloads.shape import RecordedLengths
from loadtest.workloads.trace import TraceUnreadable, read_trace


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The same traffic for the same seed. Nothing that arrives in the first `warm_up_s` counts."""

    for_s: float = 300.0
    warm_up_s: float = 75.0
    seed: int = 1
    lengths: RecordedLengths | None = None
    """Instead of every prompt and answer being of average length."""


def trial(minutes: float, seed: int, trace: Path | None) -> Trial:
    """Raises NotPlannable."""
    if not 0 < minutes < math.inf:
        raise NotPlannable(f"{minutes:g} minutes cannot be simulated; there have to be some.")
    try:
        lengths = None if trace is None else read_trace(trace).lengths()
    except TraceUnreadable as error:
        raise NotPlannable(str(error)) from error
    return Trial(for_s=60 * minutes, warm_up_s=min(120.0, 15 * minutes), seed=seed, lengths=lengths)


def asked_of(question: Question, trial: Trial) -> Question:
    """The question with the recorded lengths' means for its own."""
    if trial.lengths is None:
        return question
    prompt, output = (fmean(pair[at] for pair in trial.lengths.pairs) for at in (0, 1))
    return msgspec.structs.replace(question, prompt_tokens=prompt, output_tokens=output)
