from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from infra.adapters.demo_voices import DEMO_FOLDER, VOICES, Example, examples, questions
from infra.adapters.train_demo import Recipe, encode, learning_rate, main, padded_batch

SMOL_LAYERS, SMOL_HIDDEN = 30, 576
SMOL_OUT = {"q_proj": 576, "v_proj": 192}


@pytest.mark.parametrize("voice", VOICES)
def test_a_demo_adapter_is_small_finite_and_fits_the_packaged_base(voice: str) -> None:
    weights = DEMO_FOLDER / voice / "adapter_model.safetensors"
    assert weights.stat().st_size <= 1_000_000
    expected = {}
    for layer in range(SMOL_LAYERS):
        for name, out in SMOL_OUT.items():
            module = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            expected[f"{module}.lora_A.weight"] = (8, SMOL_HIDDEN)
            expected[f"{module}.lora_B.weight"] = (out, 8)
    tensors = load_file(weights)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == expected
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    assert all(bool(tensor.any()) for name, tensor in tensors.items() if "lora_B" in name)


@pytest.mark.parametrize("voice", VOICES)
def test_a_demo_config_names_the_base_plainly_and_what_the_file_holds(voice: str) -> None:
    config = json.loads((DEMO_FOLDER / voice / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "SmolLM2-135M-Instruct"
    assert (config["r"], config["lora_alpha"]) == (8, 16)
    assert config["target_modules"] == sorted(SMOL_OUT)
    assert (DEMO_FOLDER / voice / "README.md").read_text().startswith(f"# {voice}")


def test_every_folder_is_a_voice() -> None:
    assert {path.name for path in DEMO_FOLDER.iterdir() if path.is_dir()} == set(VOICES)


def test_questions_are_distinct_and_the_three_voices_differ_on_each() -> None:
    prompts = [question.prompt for question in questions()]
    assert len(prompts) == len(set(prompts)) >= 60
    for answers in zip(*(examples(voice) for voice in VOICES), strict=True):
        assert len({answer.answer for answer in answers}) == len(VOICES)


def test_json_answers_parse_and_terse_ones_are_short() -> None:
    for question, as_json, terse in zip(questions(), examples("json"), examples("terse"), strict=True):
        assert json.loads(as_json.answer) == {"topic": question.topic, "answer": question.sentence}
        assert len(terse.answer.split()) <= 8


class StubTokenizer:
    """One token a letter; a chat is its message between 1 and 2."""

    eos_token_id = 0

    def apply_chat_template(self, chat: list[dict[str, str]], **options: bool) -> dict[str, list[int]]:
        assert options == {"add_generation_prompt": True, "return_dict": True}
        return {"input_ids": [1, *map(ord, chat[0]["content"]), 2]}

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [*map(ord, text)]}


def test_only_the_answer_and_its_end_are_learned() -> None:
    ids, labels = encode(StubTokenizer(), Example(prompt="a", answer="bc"))
    assert ids == [1, 97, 2, 98, 99, 0]
    assert labels == [-100, -100, -100, 98, 99, 0]


def test_padding_is_neither_seen_nor_learned() -> None:
    batch = padded_batch([([5, 6, 7], [-100, 6, 7]), ([8], [8])])
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 6, 7], [8, -100, -100]]


def test_the_learning_rate_rises_to_its_peak_and_falls_to_a_tenth() -> None:
    recipe = Recipe()
    rates = [learning_rate(recipe, step) for step in range(recipe.steps + 1)]
    assert max(rates) == pytest.approx(recipe.peak_learning_rate)
    assert rates.index(max(rates)) in (recipe.warmup_steps - 1, recipe.warmup_steps)
    assert rates[-1] == pytest.approx(recipe.peak_learning_rate / 10)


def test_an_unknown_voice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path), "rude", "--out", str(tmp_path)])
    assert "no such voice: rude" in capsys.readouterr().err
