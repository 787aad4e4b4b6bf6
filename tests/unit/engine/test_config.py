"""config.json: what is not supported is refused by name, never run with wrong numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.replica_worker.engine.torch.config import ModelUnusable, parse_config, read_config
from services.replica_worker.engine.torch.eos import eos_token_ids
from tests.support.tiny_model import EOS_TOKEN_ID


@pytest.fixture
def raw(tiny_folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((tiny_folder / "config.json").read_text())
    return config


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel is not of the Llama family"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported"),
        ({"sliding_window": 4096}, "sliding-window"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, "needs a factor"),
    ],
)
def test_what_is_not_supported_is_named(raw: dict[str, Any], changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ModelUnusable, match=sentence):
        parse_config({**raw, **changes})


def test_older_configs_leave_out_what_follows_from_the_rest(raw: dict[str, Any]) -> None:
    del raw["num_key_value_heads"], raw["head_dim"]
    config = parse_config(raw)
    assert (config.kv_heads, config.head_dim) == (4, 32)


def test_a_missing_field_is_named(tmp_path: Path, raw: dict[str, Any]) -> None:
    del raw["hidden_size"]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ModelUnusable, match="lacks the field 'hidden_size'"):
        read_config(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match=r"config\.json cannot be read"):
        read_config(tmp_path)


def test_every_declared_end_counts(tiny_folder: Path, tmp_path: Path) -> None:
    for path in tiny_folder.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    assert eos_token_ids(tmp_path) == (EOS_TOKEN_ID,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 7]}))
    assert eos_token_ids(tmp_path) == (0, EOS_TOKEN_ID, 7)
    (tmp_path / "config.json").write_text(json.dumps({}))
    assert eos_token_ids(tmp_path) == (0, EOS_TOKEN_ID, 7), "the tokenizer's own eos_token counts as well"
