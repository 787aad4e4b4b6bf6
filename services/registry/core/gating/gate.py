"""May a version be activated? From answers to its evaluation set, or from what its pipeline found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from services.registry.core.gating.evaluation import Verdict
from services.registry.core.gating.evaluation_sets import EvaluationCase, EvaluationSet, Policy, expected_of, prompt_of
from shared.messages.completions import CaseOutput
from shared.messages.results import PipelineResults

CANDIDATE, BASE, PREDECESSOR = "candidate", "base", "predecessor"
LONGEST_TEXT = 8_000
"""Characters of an answer that a report keeps."""
LONGEST_NOTES = 1_000
"""They are part of the reason, which events carry."""
_ROUNDING = 1e-9

Outputs = Mapping[int, CaseOutput]
"""By the number of the case."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`error` says why there is no answer; the score is then 0."""

    text: str
    score: float
    error: str = ""


class CaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """One question and what each version said to it. Of a pipeline's own results only the candidate's is known."""

    case: int
    prompt: str
    expected: str
    candidate: Answer
    base: Answer | None = None
    predecessor: Answer | None = None


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Means over all cases; None of what was not asked."""

    candidate: float | None = None
    base: float | None = None
    predecessor: float | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluation came to, as it is kept. `source` is "built-in", "set" or "pipeline"."""

    source: str
    passed: bool
    reason: str
    scores: Scores = Scores()
    cases: tuple[CaseReport, ...] = ()
    set_id: str | None = None
    predecessor_id: str | None = None
    replica_id: str = ""
    signed_by: str = ""
    at_s: float = 0.0


ScoreOf = Callable[[EvaluationCase, str], float]


def compare(
    asked: EvaluationSet, candidate: Outputs, base: Outputs, predecessor: Outputs | None, score_of: ScoreOf
) -> tuple[CaseReport, ...]:
    """Every case with its answers, in order. Each of the three has an output for every case."""
    return tuple(
        CaseReport(
            case=number,
            prompt=prompt_of(case)[:LONGEST_TEXT],
            expected=expected_of(case)[:LONGEST_TEXT],
            candidate=_answer(case, candidate[number], score_of),
            base=_answer(case, base[number], score_of),
            predecessor=None if predecessor is None else _answer(case, predecessor[number], score_of),
        )
        for number, case in enumerate(asked.cases, start=1)
    )


def scores_of(cases: Sequence[CaseReport]) -> Scores:
    return Scores(
        candidate=_mean([case.candidate for case in cases]),
        base=_mean([case.base for case in cases]),
        predecessor=_mean([case.predecessor for case in cases]),
    )


def judge_cases(policy: Policy, cases: Sequence[CaseReport], scores: Scores) -> Verdict:
    """A version whose every answer is the base's was not trained for anything that the set asks."""
    if not any(_differs(case) for case in cases):
        return _failed(f"no effect: none of its answers ({len(cases)}) differs from the base model's")
    return judge_scores(policy, scores, "on one case" if len(cases) == 1 else f"on {len(cases)} cases")


def judge_results(policy: Policy, results: PipelineResults) -> Verdict:
    """What a pipeline says of its own adapter stands under the same policy."""
    scores = Scores(candidate=results.score, predecessor=results.predecessor_score)
    return judge_scores(policy, scores, "in its pipeline's own evaluation")


def judge_scores(policy: Policy, scores: Scores, where: str) -> Verdict:
    found = scores.candidate or 0.0
    if found < policy.minimum_score - _ROUNDING:
        return _failed(f"it scores {found:.3f} {where}, {policy.minimum_score:.3f} are needed")
    before = scores.predecessor
    if before is not None and found < before - policy.epsilon - _ROUNDING:
        return _failed(
            f"it scores {found:.3f} {where}, its predecessor {before:.3f}: more than {policy.epsilon:.3f} worse"
        )
    beside = [f"the base {scores.base:.3f}"] if scores.base is not None else []
    beside += [f"its predecessor {before:.3f}"] if before is not None else []
    more = f" ({', '.join(beside)})" if beside else ""
    return Verdict(state="active", reason=f"it scores {found:.3f} {where}{more}")


def results_fault(results: PipelineResults) -> str | None:
    """Why such results mean nothing, as a sentence."""
    scores = [results.score, *(case.score for case in results.cases)]
    scores += [] if results.predecessor_score is None else [results.predecessor_score]
    if not all(0.0 <= score <= 1.0 for score in scores):
        return "Every score must be from 0 to 1."
    if len(results.notes) > LONGEST_NOTES:
        return f"The notes have {len(results.notes)} characters, {LONGEST_NOTES} are allowed."
    return None


def reported(results: PipelineResults) -> tuple[CaseReport, ...]:
    """A pipeline's cases as a report keeps them."""
    return tuple(
        CaseReport(
            case=case.case,
            prompt=case.prompt[:LONGEST_TEXT],
            expected=case.expected[:LONGEST_TEXT],
            candidate=Answer(text=case.output[:LONGEST_TEXT], score=case.score),
        )
        for case in results.cases
    )


def _answer(case: EvaluationCase, output: CaseOutput, score_of: ScoreOf) -> Answer:
    score = 0.0 if output.error else score_of(case, output.text)
    return Answer(text=output.text[:LONGEST_TEXT], score=score, error=output.error)


def _differs(case: CaseReport) -> bool:
    """An answer that is missing says nothing about the adapter."""
    if case.base is None or case.candidate.error or case.base.error:
        return False
    return case.candidate.text != case.base.text


def _mean(answers: Sequence[Answer | None]) -> float | None:
    scores = [answer.score for answer in answers if answer is not None]
    return sum(scores) / len(scores) if scores else None


def _failed(reason: str) -> Verdict:
    return Verdict(state="failed", reason=f"the evaluation failed: {reason}")
