"""All that operators and pipelines have to say about evaluations."""

from __future__ import annotations

import msgspec

from services.registry.evaluation_sets import EvaluationSets
from services.registry.io.database import Database
from services.registry.pipeline_keys import PipelineKeys
from services.registry.results import Results
from services.registry.verdicts import Verdicts
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
