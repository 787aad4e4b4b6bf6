"""What a full batch would produce, from steps that were not full, and what must not be mistaken for it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.one_replica import Ask
from loadtest.virtual_time import run_virtually
from services.replica_worker.core.capacity import Capacity, StepTime
from tests.simulation.schedule_world import world
from tests.support.tiny_model import tiny_model_once

ROWS = 32


class Batch:
    """An engine on paper: steps of a + b times the rows, plus what prompts take."""

    def __init__(self, a_s: float, b_s: float) -> None:
        self.capacity = Capacity()
        self.a_s, self.b_s = a_s, b_s
        self.now_s = 0.0
        self._names: set[str] = set()
        self._count = 0

    def step(self, rows: int, *, prompts: int = 0, prompt_s: float = 0.0, each: int = 1, stall_s: float = 0.0) -> None:
        """`prompts` rows get their first token in it."""
        ended = set(sorted(self._names)[: max(0, len(self._names) + prompts - rows)])
        self._names -= ended
        for _ in range(rows - len(self._names)):
            self._count += 1
            self._names.add(f"r{self._count}")
        self.now_s += each * (self.a_s + self.b_s * rows) + prompts * prompt_s + stall_s
        self.capacity.step(dict.fromkeys(self._names, each), frozenset(), rows, self.now_s)

    @property
    def tokens_per_s(self) -> float:
        return self.capacity.tokens_per_s(ROWS)


def test_nothing_is_said_before_something_was_measured() -> None:
    batch = Batch(0.05, 0.0)
    assert batch.tokens_per_s == 0.0
    for _ in range(5):
        batch.step(4)
    assert batch.tokens_per_s == 0.0


@pytest.mark.parametrize("at", range(16))
def test_a_pause_among_the_first_steps_is_no_measure_of_all_of_them(at: int) -> None:
    batch = Batch(0.05, 0.0)
    batch.step(4, prompts=4)
    for step in range(18):
        batch.step(4, stall_s=10.0 if step == at else 0.0)
    assert batch.tokens_per_s == pytest.approx(ROWS / 0.05, rel=0.2)


@pytest.mark.parametrize(("a_s", "b_s"), [(0.05, 0.0), (0.02, 0.001), (0.001, 0.004)])
def test_a_half_empty_batch_shows_what_a_full_one_would_do(a_s: float, b_s: float) -> None:
    batch, draw = Batch(a_s, b_s), random.Random(1)
    for _ in range(400):
        rows = draw.randint(2, 20)
        for _ in range(4):
            batch.step(rows, prompts=1)
            batch.step(rows)
    assert batch.tokens_per_s == pytest.approx(ROWS / (a_s + ROWS * b_s), rel=0.05)


def test_a_few_rows_are_no_measure_of_many() -> None:
    """What steps with two rows say of 32 is good for a plan, and not for sending anybody away."""
    batch = Batch(0.05, 0.0)
    for _ in range(40):
        batch.step(2)
    assert batch.tokens_per_s > 0.0
    assert batch.capacity.measured_tokens_per_s(ROWS) == 0.0
    for _ in range(40):
        batch.step(ROWS)
    assert batch.capacity.measured_tokens_per_s(ROWS) == batch.tokens_per_s


def test_prompts_take_their_share_of_the_time() -> None:
    """Fleet A: a prompt of 750 tokens for every 250 that are produced is 94 ms for 12.5 s of a row."""
    batch = Batch(0.05, 0.0)
    for _ in range(300):
        batch.step(25, prompts=1, prompt_s=0.09375)
        for _ in range(9):
            batch.step(25)
    assert batch.tokens_per_s == pytest.approx(1 / (0.05 / ROWS + 0.09375 / 250), rel=0.01)


def test_a_prompt_that_is_computed_in_parts_takes_the_time_of_them_all() -> None:
    """Its row is taken and produces nothing yet."""
    capacity, now_s = Capacity(), 0.0
    for at in range(2_000):
        beside = at % 4 == 0
        now_s += 0.07 if beside else 0.05
        capacity.step({"a": 1, "b": 1}, frozenset(), 2 + beside, now_s)
    assert capacity.tokens_per_s(ROWS) == pytest.approx(1 / (0.05 / ROWS + 0.02 / 8), rel=0.01)


def test_prompts_that_come_no_more_are_forgotten() -> None:
    batch = Batch(0.05, 0.0)
    for _ in range(100):
        batch.step(20, prompts=1, prompt_s=0.5)
        batch.step(20)
    assert batch.tokens_per_s < 400.0
    for _ in range(5_000):
        batch.step(20)
    assert batch.tokens_per_s == pytest.approx(640.0, rel=0.02)


def test_the_time_in_which_nothing_ran_is_no_step() -> None:
    capacity, now_s = Capacity(), 0.0
    for request in range(40):
        now_s += 7.0
        for at in range(5):
            now_s += 0.05
            name = f"r{request}"
            capacity.step({name: 1}, frozenset({name} if at == 4 else ()), int(at < 4), now_s)
    assert capacity.tokens_per_s(ROWS) == pytest.approx(640.0)


def test_several_steps_handed_out_at_once_count_as_several() -> None:
    batch = Batch(0.05, 0.0)
    for at in range(100):
        batch.step(8, each=1 + at % 3)
    assert batch.tokens_per_s == pytest.approx(640.0)


def test_a_pause_of_the_process_costs_little_and_a_slower_engine_is_believed() -> None:
    batch = Batch(0.05, 0.0)
    for _ in range(400):
        batch.step(32)
    batch.step(32, stall_s=60.0)
    assert batch.tokens_per_s == pytest.approx(640.0, rel=0.02)
    batch.a_s = 0.5
    for _ in range(2000):
        batch.step(32)
    assert batch.tokens_per_s == pytest.approx(64.0, rel=0.05)


@given(st.lists(st.tuples(st.integers(1, ROWS), st.floats(1e-6, 10.0)), min_size=20, max_size=60))
def test_whatever_is_measured_the_answer_lies_within_what_rows_can_explain(steps: list[tuple[int, float]]) -> None:
    time = StepTime()
    for rows, seconds in steps:
        time = time.after(rows, seconds)
    mean_rows, mean_s = time.rows / time.weight, time.seconds / time.weight
    assert mean_s * 0.999 <= time.step_s(ROWS) <= mean_s * ROWS / mean_rows * 1.001


def test_a_replica_of_fleet_a_reports_640_tokens_a_second(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def reported() -> list[float]:
        async with world(tmp_path, tiny_model_once(tmp_path_factory), 4, slots=4, max_rows=ROWS) as (one, records):
            before = one.replica.reporter.report().capacity_tokens_per_s
            for at in range(60):
                record, tokens = records[at % 4], 20 + 7 * (at % 9)
                await one.send(Ask(request_id=f"r{at}", tenant_id="acme", max_tokens=tokens, record=record))
                await one.clock.sleep_s(0.2)
            return [before, one.replica.reporter.report().capacity_tokens_per_s]

    assert run_virtually(reported()) == [0.0, pytest.approx(640.0, rel=0.05)]


def test_a_full_replica_whose_steps_all_hold_prompts_knows_its_pace() -> None:
    batch = Batch(0.05, 0.0)
    batch.step(ROWS, prompts=ROWS)
    for _ in range(60):
        batch.step(ROWS, prompts=2, prompt_s=0.15)
    assert batch.tokens_per_s == 0.0, "no step tells what a token alone takes"
    assert batch.capacity.measured_tokens_per_s(ROWS) == pytest.approx(ROWS / 0.35, rel=0.05)


def test_steps_with_prompts_and_few_rows_are_no_measure_of_many() -> None:
    batch = Batch(0.05, 0.0)
    for _ in range(60):
        batch.step(2, prompts=1, prompt_s=0.15)
    assert batch.capacity.measured_tokens_per_s(ROWS) == 0.0
