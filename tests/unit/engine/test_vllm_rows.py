"""How tokens are chosen inside vLLM, which has one chosen for every part of a prompt and takes the last."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from services.replica_worker.engine.grammars import Grammars
from services.replica_worker.engine.vllm.rows import Row
from services.replica_worker.engine.vllm.wording import Draw
from tests.support.tiny_model import EOS_TOKEN_ID, VOCABULARY_SIZE

PROMPT = (5, 6, 7)


@pytest.fixture(scope="module")
def grammars(tiny_folder: Path) -> Grammars:
    return Grammars(tiny_folder, VOCABULARY_SIZE, (EOS_TOKEN_ID,))


def logits(seed: int) -> torch.Tensor:
    return torch.randn(VOCABULARY_SIZE, generator=torch.Generator().manual_seed(seed)) * 3


def answer(draw: Draw, grammars: Grammars, parts: int) -> list[int]:
    """Of eight tokens, after a prompt that comes in so many parts."""
    produced: list[int] = []
    row = Row(draw, PROMPT, produced)
    for part in range(parts - 1):
        row.choose(logits(part % 2), grammars)
    for at in range(8):
        produced.append(row.choose(logits(at % 2), grammars)[0])
    return produced


@pytest.mark.parametrize(
    "draw",
    [
        Draw(0.0, 1.0, 1, 0, frequency_penalty=3.0, told=True),
        Draw(1.3, 0.9, 1, 0, presence_penalty=2.0, logit_bias=((9, 4.0),)),
        Draw(0.0, 1.0, 1, 0, json_schema='{"enum": ["abcdefgh"]}'),
        Draw(0.0, 1.0, 1, 2, frequency_penalty=3.0),
    ],
)
def test_what_was_chosen_for_a_part_of_the_prompt_was_never_produced(draw: Draw, grammars: Grammars) -> None:
    assert answer(draw, grammars, parts=4) == answer(draw, grammars, parts=1)


def test_what_another_replica_produced_is_penalised_and_the_prompt_is_not(grammars: Grammars) -> None:
    likely = torch.zeros(VOCABULARY_SIZE)
    likely[list(PROMPT)] = torch.tensor([3.0, 2.0, 1.0])
    chosen, shown = Row(Draw(0.0, 1.0, 1, 2, presence_penalty=1.5), PROMPT, []).choose(likely, grammars)
    assert (chosen, shown[list(PROMPT)].tolist()) == (5, [3.0, 0.5, -0.5])
    assert likely[list(PROMPT)].tolist() == [3.0, 2.0, 1.0]
