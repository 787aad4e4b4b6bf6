"""The answer to whoever wants something gone that others still point at."""

from __future__ import annotations

from typing import TypeVar

from services.registry.core.pointers import StillNeeded, told
from services.registry.http.exchange import Problem

T = TypeVar("T")


def unneeded(outcome: T | StillNeeded) -> T:
    """What was asked for, or a Problem 409 whose `defects` name every pointer, however many there are."""
    if isinstance(outcome, StillNeeded):
        problem = Problem(409, outcome.message, "base_model_in_use")
        problem.defects = told(outcome)
        raise problem
    return outcome
