"""Ten thousand requests over 80 canaries: every answer carries the marker of the adapter that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.isolation import (
    BY_PROOF,
    FAULTS,
    NO_PROOF,
    PROVEN,
    Isolation,
    isolation_figures,
    measure,
    plant,
    seen_by_judge,
    seen_by_proof,
)

REQUESTS = 10_000
SABOTAGE = "tests.support.sabotage"


@pytest.fixture(scope="module")
def isolation(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Isolation:
    return measure(model_folder, tmp_path_factory.mktemp("isolation"), REQUESTS)


def test_no_answer_carries_a_marker_that_is_not_its_own(isolation: Isolation) -> None:
    tally = isolation.outcome.tally
    assert not tally.wrong, tally.findings
    assert tally.completed + tally.aborted + tally.refused.total() == REQUESTS


def test_enough_went_on_meanwhile(isolation: Isolation) -> None:
    figures = isolation_figures(isolation.outcome, REQUESTS)
    assert {name: str(figure) for name, figure in figures.items() if figure.met is False} == {}, (
        isolation.outcome.tally.refused
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_shows_in_the_answers(isolation: Isolation, fault: str) -> None:
    assert seen_by_judge(plant(isolation, SABOTAGE, (fault, NO_PROOF)))


def test_the_proof_of_effect_stops_a_fault_before_an_answer_shows_it(isolation: Isolation) -> None:
    assert seen_by_proof(plant(isolation, SABOTAGE, BY_PROOF)) == set(PROVEN)


def test_without_a_fault_the_way_of_planting_one_changes_nothing(isolation: Isolation) -> None:
    outcome = plant(isolation, SABOTAGE, (NO_PROOF,))
    assert not seen_by_judge(outcome), outcome.tally.findings
    assert not outcome.tally.refused
