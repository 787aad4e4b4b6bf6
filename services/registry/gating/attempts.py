"""What is known of one evaluation that is under way."""

from __future__ import annotations

import msgspec

from services.registry.core.gating.evaluation_sets import EvaluationSet
from services.registry.core.gating.gate import Report
from services.registry.core.records import StoredAdapter
from shared.messages.completions import CaseOutput
from shared.messages.operations import Evaluation

_SURE = 2
"""As often a question must fail before that is the answer: the first time it may be the replica's fault."""


class Sheet:
    """One version's answers to one set, gathered from whichever replicas give them."""

    def __init__(self) -> None:
        self.outputs: dict[int, CaseOutput] = {}
        self.replica_id = ""
        self._failed: dict[int, int] = {}

    def take(self, output: CaseOutput, replica_id: str) -> None:
        times = self._failed[output.case] = self._failed.get(output.case, 0) + bool(output.error)
        if not output.error or times >= _SURE:
            self.outputs[output.case] = output
            self.replica_id = replica_id


class Attempt:
    """From the first question about an adapter to its verdict: what was answered is not asked again, whatever
    dies meanwhile. Another set, or another predecessor, is asked anew."""

    def __init__(self) -> None:
        self.measured: Evaluation | None = None
        self._sheets: dict[tuple[str, ...], Sheet] = {}

    def sheet(self, role: str, set_id: str, adapter_id: str = "") -> Sheet:
        return self._sheets.setdefault((role, set_id, adapter_id), Sheet())


class Standard(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate has to stand up to; `note` says why there is nothing to compare it with."""

    asked: EvaluationSet | None = None
    predecessor: StoredAdapter | None = None
    note: str = ""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is "active" or "failed", or "evaluating" if the pipeline's results are still to come."""

    state: str
    reason: str
    reports: tuple[Report, ...]
    measured: Evaluation | None = None
