from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from infra.models.folder import ModelUnavailable
from infra.models.gguf_folder import convert_gguf
from infra.models.gguf_weights import llama_name
from shared.base_model import base_model_hash
from tests.unit.infra_models.tiny_gguf import HEADS, HIDDEN, KV_HEADS, SHAPES, weights, write_gguf


def silent(line: str) -> None:
    pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    made.mkdir()
    convert_gguf(write_gguf(tmp_path / "tiny.gguf"), made, silent)
    return made


def test_every_tensor_arrives_in_bfloat16_under_its_hugging_face_name(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    assert set(tensors) == {llama_name(f"{name}.weight") for name in SHAPES}
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    gate = torch.from_numpy(weights()["blk.0.ffn_gate"])
    assert torch.equal(tensors["model.layers.0.mlp.gate_proj.weight"].float(), gate)


@pytest.mark.parametrize(("part", "name", "heads"), [("attn_q", "q_proj", HEADS), ("attn_k", "k_proj", KV_HEADS)])
def test_rotated_rows_are_told_apart_into_halves(folder: Path, part: str, name: str, heads: int) -> None:
    interleaved = torch.from_numpy(weights()[f"blk.0.{part}"])
    halved = load_file(folder / "model.safetensors")[f"model.layers.0.self_attn.{name}.weight"].float()
    width = interleaved.shape[0] // heads
    for head in range(heads):
        before, after = (rows[head * width : (head + 1) * width] for rows in (interleaved, halved))
        assert torch.equal(after, torch.cat((before[0::2], before[1::2])))


def test_config_describes_the_tensors(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert (config["hidden_size"], config["head_dim"]) == (HIDDEN, HIDDEN // HEADS)
    assert (config["rms_norm_eps"], config["rope_theta"]) == (1e-5, 100000.0)
    assert config["tie_word_embeddings"] is True
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)


def test_tokenizer_merges_splits_digits_and_keeps_control_tokens_whole(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode("ab11 ab<|im_end|>").tokens == ["ab", "1", "1", "Ġ", "ab", "<|im_end|>"]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert (config["eos_token"], config["chat_template"]) == ("<|im_end|>", "{{ messages }}")


def test_two_conversions_have_one_identity(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    convert_gguf(tmp_path / "tiny.gguf", again, silent)
    assert [path.name for path in sorted(again.iterdir())] == [path.name for path in sorted(folder.iterdir())]
    for path in again.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes()
    assert base_model_hash(again) == base_model_hash(folder)


@pytest.mark.parametrize(("field", "value"), [("architecture", "gpt2"), ("pre_tokenizer", "qwen2")])
def test_another_kind_of_model_is_refused_by_name(tmp_path: Path, field: str, value: str) -> None:
    gguf = write_gguf(tmp_path / "other.gguf", **{field: value})
    with pytest.raises(ModelUnavailable, match=value):
        convert_gguf(gguf, tmp_path, silent)
