"""All that operators and pipelines have to say about evaluations."""

from __future__ import annotations

import msgspec

from services.registry.gating.evaluation_sets import EvaluationSets
from services.registry.gating.pipeline_keys import PipelineKeys
from services.registry.gating.results import Results
from services.registry.gating.verdicts import Verdicts
from services.registry.io.database import Database
from shared.runtime.clock import Clock


class Evaluating(msgspec.Struct, frozen=True, kw_only=True):
    sets: EvaluationSets
    verdicts: Verdicts
    results: Results
    keys: PipelineKeys


def evaluating(database: Database, verdicts: Verdicts, clock: Clock) -> Evaluating:
    return Evaluating(
        sets=EvaluationSets(database, clock),
        verdicts=verdicts,
        results=Results(database, verdicts, clock),
        keys=PipelineKeys(database, clock),
    )
