"""Our forward pass against the libraries everybody trains with: the same folder, the same adapter file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from services.replica_worker.engine.batch import Piece
from services.replica_worker.engine.blocks import blocks_for
from services.replica_worker.engine.port import BASE_SLOT, AdapterSpec
from services.replica_worker.engine.sequence import Sequence as Running
from services.replica_worker.engine.torch.adapter import read_adapter, scale_of
from services.replica_worker.engine.torch.build import Parts, build
from services.replica_worker.engine.torch.layout import lay_out
from services.replica_worker.engine.torch.policy import TorchPolicy
from services.replica_worker.engine.torch.steps import step_of
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.tiny_model import LAYERS, module_shapes
from tests.support.token_log import greedy

PROMPT = tuple(3 + 7 * i % 250 for i in range(48))
POLICY = TorchPolicy(dtype="float32", slots=3, max_rows=48, rank_limit=32, max_context_tokens=64)

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one key head for all": {"num_key_value_heads": 1},
    "tied embeddings": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "linear rope": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3 rope": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "newer spelling of rope": {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
}

ADAPTERS = {
    "plain": RandomAdapter(seed=1),
    "c45 rslora": RandomAdapter(seed=2, use_rslora=True),
    "c50 patterns": RandomAdapter(
        seed=3, rank_pattern={"q_proj": 32, "down_proj": 4}, alpha_pattern={"q_proj": 5.0, "up_proj": 3.0}
    ),
    "two modules": RandomAdapter(seed=4, targets=("q_proj", "v_proj"), alpha=7.0),
}


def logits_of(parts: Parts, pieces: Sequence[tuple[int, int]], slot: int = BASE_SLOT) -> torch.Tensor:
    """Logits [tokens, vocabulary] after every token of PROMPT, computed in these [start, stop) pieces."""
    got = []
    sequence = Running(greedy("parity", PROMPT, slot))
    sequence.blocks = list(range(blocks_for(len(PROMPT))))
    for start, stop in pieces:
        step = step_of((Piece(0, start, stop, last=True),), {0: sequence}, parts.kernels, torch.device("cpu"))
        step = msgspec.structs.replace(step, sampled=torch.arange(stop - start))
        with torch.inference_mode():
            got.append(parts.stepper._model.forward(step, parts.stepper._cache).tensor.float().clone())
    return torch.cat(got)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, atol: float = 2e-4, rtol: float = 1e-4) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=rtol)


def reference(folder: Path, adapter_folder: Path | None = None) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if adapter_folder:
        model = PeftModel.from_pretrained(model, adapter_folder)
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([PROMPT])).logits[0]
    return logits


def variant_folder(tiny: Path, folder: Path, changes: dict[str, Any]) -> Path:
    shutil.copytree(tiny, folder)
    config = {**json.loads((folder / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    if config["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    generator = torch.Generator().manual_seed(5)
    for layer in range(LAYERS):
        for module, (out, _) in module_shapes().items():
            name = f"model.layers.{layer}.{module}"
            if module in ("self_attn.k_proj", "self_attn.v_proj"):
                out = config["num_key_value_heads"] * config["head_dim"]
                tensors[f"{name}.weight"] = tensors[f"{name}.weight"][:out].clone()
            if config["attention_bias"]:
                tensors[f"{name}.bias"] = torch.randn(out, generator=generator).to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_logits_equal_those_of_transformers(tiny_folder: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = variant_folder(tiny_folder, tmp_path / "model", changes)
    parts = build(folder, POLICY)
    assert_close(logits_of(parts, [(0, 48)]), reference(folder))


def test_chunks_and_single_tokens_give_the_logits_of_the_whole(tiny_folder: Path) -> None:
    parts = build(tiny_folder, POLICY)
    pieces = [(0, 16), (16, 32), (32, 41), *((at, at + 1) for at in range(41, 48))]
    assert_close(logits_of(parts, pieces), reference(tiny_folder))


def test_bfloat16_stays_near_float32(tiny_folder: Path) -> None:
    parts = build(tiny_folder, msgspec.structs.replace(POLICY, dtype="bfloat16"))
    assert_close(logits_of(parts, [(0, 48)]), reference(tiny_folder), atol=0.1, rtol=0.1)


def loaded(tiny_folder: Path, tmp_path: Path, adapter: RandomAdapter) -> tuple[Parts, Path, AdapterSpec]:
    """The adapter in slot 1, another one in slot 2."""
    parts = build(tiny_folder, POLICY)
    for slot, one in ((2, RandomAdapter(seed=99)), (1, adapter)):
        path, spec = write_adapter(tmp_path, one, parts.info.base_model_hash)
        parts.slots.store(slot, lay_out(read_adapter(path, spec, parts.limits), parts.limits.model, parts.kernels))
    return parts, path, spec


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks transformers for it
@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS.keys())
def test_c11_adapted_logits_equal_those_of_peft(tiny_folder: Path, tmp_path: Path, adapter: RandomAdapter) -> None:
    parts, path, spec = loaded(tiny_folder, tmp_path, adapter)
    shutil.copy(path, tmp_path / "adapter_model.safetensors")
    peft_config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": spec.rank,
        "lora_alpha": spec.alpha,
        "target_modules": list(spec.target_modules),
        "use_rslora": spec.use_rslora,
        "rank_pattern": spec.rank_pattern,
        "alpha_pattern": spec.alpha_pattern,
        "base_model_name_or_path": None,
        "inference_mode": True,
    }
    (tmp_path / "adapter_config.json").write_text(json.dumps(peft_config))
    expected = reference(tiny_folder, tmp_path)
    assert (expected - reference(tiny_folder)).abs().max() > 0.1, "this adapter does too little to prove anything"
    assert_close(logits_of(parts, [(0, 32), (32, 48)], slot=1), expected)


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS.keys())
def test_unmerged_logits_equal_those_of_a_merged_copy(
    tiny_folder: Path, tmp_path: Path, adapter: RandomAdapter
) -> None:
    parts, path, spec = loaded(tiny_folder, tmp_path, adapter)
    folder = shutil.copytree(tiny_folder, tmp_path / "merged")
    tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    lora = load_file(path)
    for layer in range(LAYERS):
        for module in module_shapes():
            prefix = f"base_model.model.model.layers.{layer}.{module}"
            if f"{prefix}.lora_A.weight" in lora:
                a, b = (lora[f"{prefix}.lora_{side}.weight"].float() for side in "AB")
                tensors[f"model.layers.{layer}.{module}.weight"] += scale_of(spec, (layer, module)) * b @ a
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    merged = build(folder, POLICY)
    assert_close(logits_of(parts, [(0, 48)], slot=1), logits_of(merged, [(0, 48)]))
