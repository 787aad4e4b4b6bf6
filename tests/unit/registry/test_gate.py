"""What passes the gate."""

from __future__ import annotations

import pytest

from services.registry.core.gating.evaluation_sets import EvaluationCase, EvaluationSet, Policy
from services.registry.core.gating.gate import (
    Answer,
    CaseReport,
    Scores,
    compare,
    judge_cases,
    judge_results,
    judge_scores,
    results_fault,
    scores_of,
)
from shared.messages.completions import CaseOutput
from shared.messages.generation import ChatMessage
from shared.messages.results import PipelineResults, ResultCase, signed_bytes

CASE = EvaluationCase(
    line=1, messages=(ChatMessage(role="user", content="Hello"),), kind="exact", expected="yes"
)  # fmt: skip


def outputs(*texts: str) -> dict[int, CaseOutput]:
    return {
        case: CaseOutput(case=case, text=text, tokens=1, finish="stop", error="broken" if text == "!" else "")
        for case, text in enumerate(texts, start=1)
    }


def judged(candidate: str, base: str, predecessor: str | None = None, policy: Policy | None = None) -> tuple[str, str]:
    """Texts of single letters; "y" is right."""
    asked = EvaluationSet(set_id="s", tenant_id="acme", cases=(CASE,) * len(candidate))
    before = None if predecessor is None else outputs(*predecessor)
    cases = compare(asked, outputs(*candidate), outputs(*base), before, lambda case, text: float(text == "y"))
    verdict = judge_cases(policy or Policy(), cases, scores_of(cases))
    return verdict.state, verdict.reason


def test_a_good_version_passes() -> None:
    assert judged("yyyn", "nnnn", "yynn")[0] == "active"


def test_c08_answers_that_are_all_the_bases_have_no_effect_however_right_they_are() -> None:
    state, reason = judged("yyyy", "yyyy")
    assert (state, "no effect" in reason) == ("failed", True)


def test_answers_that_are_missing_are_no_effect() -> None:
    assert "no effect" in judged("!y", "yy")[1]
    assert "no effect" in judged("y", "!")[1]


def test_a_version_below_the_minimum_fails_with_both_numbers() -> None:
    state, reason = judged("ynnn", "nnnn")
    assert (state, "0.250" in reason, "0.500" in reason) == ("failed", True, True)
    assert judged("ynnn", "nnnn", policy=Policy(minimum_score=0.25))[0] == "active"


def test_an_answer_that_is_missing_counts_as_wrong() -> None:
    assert judged("y!", "nn")[0] == "active"
    assert judged("y!!", "nnn")[0] == "failed"


def test_a_version_may_be_epsilon_worse_than_its_predecessor_and_no_more() -> None:
    assert judged("yyyn", "nnnn", "yyyy", Policy(epsilon=0.25))[0] == "active"
    state, reason = judged("yyyn", "nnnn", "yyyy", Policy(epsilon=0.24))
    assert (state, "predecessor 1.000" in reason) == ("failed", True)


def test_a_predecessor_may_itself_be_below_the_minimum() -> None:
    assert judged("yyn", "nnn", "nnn")[0] == "active"


@pytest.mark.parametrize("score", [0.3, 0.7])
def test_rounding_decides_nothing(score: float) -> None:
    exactly = Policy(minimum_score=score, epsilon=0.1)
    scores = Scores(candidate=score, predecessor=score + 0.1)
    assert judge_scores(exactly, scores, "here").state == "active"


def test_a_pipelines_own_results_stand_under_the_same_policy() -> None:
    assert judge_results(Policy(), PipelineResults(score=0.5)).state == "active"
    assert judge_results(Policy(), PipelineResults(score=0.49)).state == "failed"
    assert judge_results(Policy(), PipelineResults(score=0.9, predecessor_score=0.95)).state == "failed"


@pytest.mark.parametrize(
    "results",
    [
        PipelineResults(score=1.1),
        PipelineResults(score=float("nan")),
        PipelineResults(score=0.5, predecessor_score=-1.0),
        PipelineResults(score=0.5, cases=(ResultCase(case=1, score=2.0),)),
        PipelineResults(score=0.5, notes="x" * 1_001),
    ],
)
def test_scores_are_from_0_to_1(results: PipelineResults) -> None:
    assert results_fault(results) is not None
    assert results_fault(PipelineResults(score=1.0)) is None


def test_a_signature_is_over_one_version_and_all_that_is_said_of_it() -> None:
    said = PipelineResults(score=1.0, notes="n")
    assert signed_bytes("v1", "d1", said) == (
        b'{"adapter_id":"v1","digest":"d1","results":{"cases":[],"notes":"n","predecessor_score":null,"score":1.0}}'
    )
    texts = {signed_bytes("v1", "d1", said), signed_bytes("v2", "d1", said), signed_bytes("v1", "d2", said)}
    assert len(texts | {signed_bytes("v1", "d1", PipelineResults(score=1.0))}) == 4


def test_scores_are_means() -> None:
    case = CaseReport(case=1, prompt="p", expected="e", candidate=Answer(text="t", score=1.0))
    other = CaseReport(
        case=2, prompt="p", expected="e", candidate=Answer(text="t", score=0.0), base=Answer(text="t", score=1.0)
    )
    assert scores_of([case, other]) == Scores(candidate=0.5, base=1.0)
