"""Prompts take longer while other replicas of the same machine compute, and only then."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.crowd import Crowd
from loadtest.twin.scenario import Fault, PoolShape, Scenario
from loadtest.twin.sequence import BatchShape, Sequence
from loadtest.twin.timing import StepTable, Timing
from loadtest.twin.twin import Twin
from loadtest.workloads.call import Call

SHAPE = BatchShape(chunk_tokens=512)
STEP_S, SHARE = 0.050, 0.5
LONE_S = 2 * STEP_S + 800 / 8_000
"""Of a prompt of 800 tokens, in two steps."""


def _first_s(others: int, answers: int, at_s: float = 1.0, tokens: int = 200) -> float:
    """How long a prompt of 800 tokens takes that comes while each of the others gives so many answers."""
    agenda, first_s, crowd = Agenda(), {}, Crowd(SHARE)

    def on_step(first: list[Sequence], _: list[Sequence]) -> None:
        first_s.update(dict.fromkeys(first, agenda.now_s))

    mine, *rest = [Batch(SHAPE, StepTable(), agenda, on_step, random.Random(0)) for _ in range(1 + others)]
    for batch in (mine, *rest):
        crowd.join(batch)
    for batch in rest:
        for _ in range(answers):
            agenda.at(0.0, batch.submit, Sequence(None, 1, tokens))
    asked = Sequence(None, 800, 2)
    agenda.at(at_s, mine.submit, asked)
    agenda.run(100.0)
    return first_s[asked] - at_s


@pytest.mark.parametrize("answers", [1, 6])
def test_a_prompt_takes_longer_for_each_other_replica_that_computes(answers: int) -> None:
    assert [_first_s(others, answers) for others in (0, 1, 2)] == pytest.approx(
        [LONE_S, (1 + SHARE) * LONE_S, (1 + 2 * SHARE) * LONE_S]
    )


def test_answers_that_are_over_crowd_nobody() -> None:
    assert _first_s(others=2, answers=3, tokens=4) == pytest.approx(LONE_S)


PHASES = 8
"""A request waits for the step under way to end: so many, spread over one step, wait for half of it on average."""


def _ttft_s(timing: Timing, *faults: Fault) -> float:
    """Of a long prompt in a fleet of two, while both give answers of 30 s; the mean of requests that come at different
    moments of a step."""
    return fmean(_asked_at(10.0 + phase * STEP_S / PHASES, timing, *faults) for phase in range(PHASES))


def _asked_at(at_s: float, timing: Timing, *faults: Fault) -> float:
    calls = [Call(0.0, at, at, 1, 600, 600, True) for at in range(8)] + [Call(at_s, 8, 8, 800, 2, 2, True)]
    pool = PoolShape(replicas=2, slots=12, adapter_bytes=1_000)
    scenario = Scenario(calls=lambda: calls, customers=9, for_s=60.0, pools=(pool,), timing=timing, faults=faults)
    outcome = Twin(scenario).run()
    assert outcome.broken == ()
    return max(outcome.requests, key=lambda each: each.arrived_s).ttft_s or 0.0


def test_a_fleet_whose_replicas_share_processors_answers_long_prompts_later_while_both_live() -> None:
    crowded = Timing(crowd_share=SHARE)
    assert _ttft_s(crowded) - _ttft_s(Timing()) == pytest.approx(SHARE * LONE_S, rel=0.05)
    one_dies = Fault(kind="death", at_s=5.0)
    assert _ttft_s(crowded, one_dies) == pytest.approx(_ttft_s(Timing(), one_dies))
