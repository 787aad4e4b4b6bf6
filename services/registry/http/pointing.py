"""The answer to whoever wants something gone that others still point at."""

from __future__ import annotations

from services.registry.core.base_migration.pointers import StillNeeded, told
from services.registry.http.exchange import Problem


def in_use(needed: StillNeeded) -> Problem:
    """409; its `defects` name every pointer, however many there are."""
    problem = Problem(409, needed.message, "base_model_in_use")
    problem.defects = told(needed)
    return problem
