"""Penalties and log probabilities against the formula, computed plainly, and against transformers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from services.replica_worker.engine.sequence import Sequence as Running
from services.replica_worker.engine.shaping import Logprobs, Shaping
from services.replica_worker.engine.torch.build import build
from services.replica_worker.engine.torch.shaped import Shaped
from tests.support.parity import POLICY, PROMPT
from tests.support.token_log import greedy

VOCABULARY = 50
CPU = torch.device("cpu")
TOKENS = st.lists(st.integers(0, 5), max_size=30)


def logits(seed: int = 0) -> torch.Tensor:
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


def expected(row: torch.Tensor, shaping: Shaping, produced: list[int]) -> torch.Tensor:
    """OpenAI's formula, token by token."""
    counts = Counter(produced)
    moved = [
        value + shaping.logit_bias.get(token_id, 0.0)
        - shaping.frequency_penalty * counts[token_id]
        - (shaping.presence_penalty if counts[token_id] else 0.0)
        for token_id, value in enumerate(row.double().tolist())
    ]  # fmt: skip
    return torch.tensor(moved)


@settings(max_examples=25)
@given(produced=TOKENS, chosen=TOKENS, frequency=st.floats(-2, 2), presence=st.floats(-2, 2))
def test_the_row_is_that_of_the_formula_whoever_produced_what(
    produced: list[int], chosen: list[int], frequency: float, presence: float
) -> None:
    shaping = Shaping(frequency_penalty=frequency, presence_penalty=presence, logit_bias={2: 1.5, 9: -4.0})
    shaped, seen = Shaped(shaping, produced, VOCABULARY, CPU), []

    for token_id in [*chosen, 0]:
        shaped.choose(logits(), lambda row, token_id=token_id: (seen.append(row), token_id)[1])  # type: ignore[misc]
    for at, row in enumerate(seen):
        torch.testing.assert_close(row, expected(logits(), shaping, produced + chosen[:at]), atol=1e-4, rtol=0)
    again = Shaped(shaping, produced + chosen, VOCABULARY, CPU)
    again.choose(logits(), lambda row: (seen.append(row), 0)[1])  # type: ignore[func-returns-value]
    assert torch.equal(seen[-1], seen[-2]), "a continuation computes the very same numbers"


def test_the_logits_of_the_batch_stay_as_they_are() -> None:
    given = logits()
    shaped = Shaped(Shaping(logit_bias={1: 5.0}, presence_penalty=1.0, top_logprobs=3), [1, 2], VOCABULARY, CPU)
    shaped.choose(given, lambda row: int(row.argmax()))
    assert torch.equal(given, logits())


@pytest.mark.parametrize("top", [0, 3, 20, 100])
def test_what_is_told_is_log_softmax_before_temperature(top: int) -> None:
    shaped = Shaped(Shaping(logit_bias={4: 2.0}, top_logprobs=top), [], VOCABULARY, CPU)
    token_id, told = shaped.choose(logits(), lambda row: 7)
    whole = torch.log_softmax(expected(logits(), Shaping(logit_bias={4: 2.0}), []), dim=-1)
    values, token_ids = whole.sort(descending=True)
    count = min(top, VOCABULARY)
    assert token_id == 7
    assert told == Logprobs(
        pytest.approx(whole[7].item(), abs=1e-5),
        tuple(token_ids[:count].tolist()),
        pytest.approx(values[:count].tolist(), abs=1e-5),
    )


def test_nothing_is_told_unasked() -> None:
    assert Shaped(Shaping(logit_bias={4: 2.0}), [], VOCABULARY, CPU).choose(logits(), lambda row: 7) == (7, None)


def test_an_answer_is_told_with_the_log_probabilities_of_transformers(tiny_folder: Path) -> None:
    shaping = Shaping(frequency_penalty=0.7, presence_penalty=0.4, logit_bias={30: 1.0}, top_logprobs=5)
    stepper = build(tiny_folder, POLICY).stepper
    request = msgspec.structs.replace(greedy("a", PROMPT, max_tokens=12), shaping=shaping)
    stepper.schedule.submit(Running(request))
    tokens = []
    with torch.inference_mode():
        while stepper.schedule.busy:
            tokens += [token for _, token in stepper.step()]
        answer = [token.token_id for token in tokens]
        model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
        raw = model(torch.tensor([[*PROMPT, *answer]])).logits[0, len(PROMPT) - 1 : -1]
    for at, token in enumerate(tokens):
        whole = torch.log_softmax(expected(raw[at], shaping, answer[:at]), dim=-1)
        assert token.logprobs is not None
        assert token.logprobs.chosen == pytest.approx(whole.max().item(), abs=2e-4)
        assert token.logprobs.chosen == pytest.approx(whole[token.token_id].item(), abs=2e-4)
        assert token.logprobs.of_token_ids == pytest.approx(whole.topk(5).values.tolist(), abs=2e-4)
