"""Logits of our forward pass and of the libraries everybody trains with, on variants of the tiny model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from services.replica_worker.engine.batch import Piece
from services.replica_worker.engine.blocks import blocks_for
from services.replica_worker.engine.port import BASE_SLOT
from services.replica_worker.engine.sequence import Sequence as Running
from services.replica_worker.engine.torch.build import Parts
from services.replica_worker.engine.torch.policy import TorchPolicy
from services.replica_worker.engine.torch.steps import step_of
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
