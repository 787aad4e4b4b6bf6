"""What a twin's replica learns of its steps is what the real one learns of the same ones."""

from __future__ import annotations

import pytest

from loadtest.twin.learnt import Learnt
from services.replica_worker.core.capacity import PromptTime, StepTime


def test_steps_are_looked_at_as_a_real_replica_looks_at_them() -> None:
    learnt, step_time, prompt_time = Learnt(), StepTime(), PromptTime()
    for at in range(60):
        giving, prompts = 1 + at % 8, at % 5 == 0
        step_s = 0.050 + 0.001 * giving + (0.020 if prompts else 0.0)
        learnt.look(1, giving, step_s, plain=not prompts, prompts=prompts)
        if not prompts:
            step_time = step_time.after(giving, step_s)
        prompt_time = prompt_time.after(giving, step_time.beyond_s(giving, step_s) if prompts else 0.0)
    assert learnt.has_seen(8)
    assert learnt.tokens_per_s(8) == step_time.tokens_per_s(8, prompt_time.s_per_token)
    assert learnt.tokens_per_s(8) < step_time.tokens_per_s(8), "prompts take some of the time"


@pytest.mark.parametrize("looked", [{"plain": False, "prompts": False}, {"plain": False, "prompts": True}])
def test_a_step_that_is_like_no_other_says_nothing_of_rows(looked: dict[str, bool]) -> None:
    learnt = Learnt()
    for _ in range(60):
        learnt.look(1, 8, 0.050, **looked)
    assert learnt.tokens_per_s(8) == 0.0
