"""No activation without a pass: the built-in evaluation first, then the evaluation set."""

from __future__ import annotations

import asyncio

from services.registry.core import records
from services.registry.core.gating import evaluation
from services.registry.core.gating.evaluation_sets import EvaluationCase, EvaluationSet, prompts_of
from services.registry.core.gating.gate import (
    BASE,
    CANDIDATE,
    PREDECESSOR,
    Report,
    Scores,
    compare,
    judge_cases,
    scores_of,
)
from services.registry.core.gating.scoring import score
from services.registry.core.records import StoredAdapter
from services.registry.gating.attempts import Attempt, Conclusion, Sheet, Standard
from services.registry.gating.questions import Questions
from services.registry.gating.standards import standard_of
from services.registry.io import case_rules
from services.registry.io.database import Database
from shared.messages.operations import Evaluation


class Gate:
    def __init__(self, database: Database, questions: Questions) -> None:
        self._database = database
        self._questions = questions

    async def examine(self, adapter: StoredAdapter, attempt: Attempt) -> Conclusion | str:
        """Where the adapter goes from here, or what stood in the way; then `attempt` holds what was answered.
        Raises DatabaseUnavailable."""
        found = attempt.measured or await self._questions.measure(adapter)
        if isinstance(found, str):
            return found
        attempt.measured = found
        built_in = _built_in(found)
        if not built_in.passed:
            return Conclusion(state="failed", reason=built_in.reason, reports=(built_in,), measured=found)
        if adapter.announced.evaluated_by == "pipeline":
            reason = "waiting for the results of its pipeline"
            return Conclusion(state="evaluating", reason=reason, reports=(built_in,), measured=found)
        async with self._database.read() as connection:
            standard = await standard_of(connection, adapter)
        if standard.asked is None:
            return Conclusion(state="active", reason=built_in.reason, reports=(built_in,), measured=found)
        report = await self._by_set(records.measured(adapter, found), standard, standard.asked, attempt)
        if isinstance(report, str):
            return report
        state = "active" if report.passed else "failed"
        return Conclusion(state=state, reason=report.reason, reports=(built_in, report), measured=found)

    async def _by_set(
        self, adapter: StoredAdapter, standard: Standard, asked: EvaluationSet, attempt: Attempt
    ) -> Report | str:
        """The same questions to the candidate, its base and the version it would replace, side by side."""
        prompts, before = prompts_of(asked), standard.predecessor
        candidate, base = attempt.sheet(CANDIDATE, asked.set_id), attempt.sheet(BASE, asked.set_id)
        asking = [
            self._questions.answers(adapter, prompts, candidate),
            self._questions.answers(adapter, prompts, base, base=True),
        ]
        predecessor = None
        if before is not None:
            predecessor = attempt.sheet(PREDECESSOR, asked.set_id, before.adapter_id)
            asking.append(self._questions.answers(before, prompts, predecessor))
        troubles = [trouble for trouble in await asyncio.gather(*asking) if trouble is not None]
        if troubles:
            return troubles[0]
        return await asyncio.to_thread(_report, standard, asked, (candidate, base, predecessor))


def _built_in(found: Evaluation) -> Report:
    verdict = evaluation.judge(found)
    return Report(
        source="built-in",
        passed=verdict.state == "active",
        reason=verdict.reason,
        replica_id=found.replica_id,
    )


def _report(standard: Standard, asked: EvaluationSet, sheets: tuple[Sheet, Sheet, Sheet | None]) -> Report:
    """Scoring takes as long as the expressions and schemas in the set ask for, so it has a thread of its own."""
    candidate, base, before = sheets
    cases = compare(asked, candidate.outputs, base.outputs, before.outputs if before else None, _score)
    scores: Scores = scores_of(cases)
    verdict = judge_cases(asked.policy, cases, scores)
    return Report(
        source="set",
        passed=verdict.state == "active",
        reason=f"{verdict.reason}; {standard.note}" if standard.note else verdict.reason,
        scores=scores,
        cases=cases,
        set_id=asked.set_id,
        predecessor_id=standard.predecessor.adapter_id if standard.predecessor else None,
        replica_id=candidate.replica_id,
    )


def _score(case: EvaluationCase, text: str) -> float:
    return score(case, text, case_rules.fits)
