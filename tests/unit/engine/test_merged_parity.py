"""Every option of an adapter on every variant of a model: applied by us, merged by us, applied and merged by PEFT.

In float32 all four are the same up to the order of sums. In bfloat16 the merged weights are rounded once more, by up
to one part in 256 each; what that does to a logit is bounded here by a tenth of the largest logit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from services.replica_worker.engine.port import AdapterSpec
from services.replica_worker.engine.torch.adapter import read_file
from services.replica_worker.engine.torch.build import build
from services.replica_worker.engine.torch.config import MODULES, read_config
from services.replica_worker.engine.torch.layout import lay_out
from shared.base_model import base_model_hash
from shared.merging.folder import merge_folder
from tests.support.parity import POLICY, PROMPT, VARIANTS, assert_close, logits_of, reference, variant_folder
from tests.support.peft_files import peft_folder
from tests.support.random_adapter import RandomAdapter, write_adapter

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks for it

PATTERNS: dict[str, Any] = {
    "rank_pattern": {"q_proj": 32, "model.layers.1.mlp.down_proj": 8}, "alpha_pattern": {"q_proj": 5.0, "up_proj": 3.0},
}  # fmt: skip

OPTIONS: dict[str, tuple[str, RandomAdapter]] = {
    "rank 4": ("plain", RandomAdapter(seed=1, rank=4)),
    "rank 16": ("plain", RandomAdapter(seed=2, rank=16, std=0.1)),
    "rank 64": ("plain", RandomAdapter(seed=3, rank=64, alpha=64.0, std=0.08)),
    "alpha": ("plain", RandomAdapter(seed=4, alpha=3.0, std=0.2)),
    "c45 rslora": ("plain", RandomAdapter(seed=5, use_rslora=True, std=0.1)),
    "attention only": ("plain", RandomAdapter(seed=6, targets=("q_proj", "v_proj"), std=0.3)),
    "one module": ("plain", RandomAdapter(seed=7, targets=("down_proj",), std=0.3)),
    "float32 file": ("plain", RandomAdapter(seed=8, dtype=torch.float32)),
    "one key head for all": ("one key head for all", RandomAdapter(seed=9)),
    "c11 tied embeddings": ("tied embeddings", RandomAdapter(seed=10, std=0.1)),
    "c11 biases and rslora": ("biases", RandomAdapter(seed=11, use_rslora=True, std=0.1)),
    "linear rope": ("linear rope", RandomAdapter(seed=12)),
    "llama3 rope and rank 64": ("llama3 rope", RandomAdapter(seed=13, rank=64, alpha=64.0, std=0.08)),
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A base in one dtype, an adapter for it as PEFT leaves it, and the folder with both merged."""

    base: Path
    merged: Path
    peft: Path
    spec: AdapterSpec


def case(tiny: Path, folder: Path, option: tuple[str, RandomAdapter], dtype: torch.dtype) -> Case:
    variant, adapter = option
    base = variant_folder(tiny, folder / "base", VARIANTS[variant])
    weights = {name: tensor.to(dtype) for name, tensor in load_file(base / "model.safetensors").items()}
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    config = read_config(base)
    shapes = {module: config.shape_of(module) for module in MODULES}
    path, spec = write_adapter(folder, adapter, base_model_hash(base), shapes)
    merge_folder(base, path, spec, folder / "merged")
    return Case(base=base, merged=folder / "merged", peft=peft_folder(folder / "peft", path, spec), spec=spec)


def unmerged(case: Case, dtype: Literal["float32", "bfloat16"]) -> torch.Tensor:
    parts = build(case.base, msgspec.structs.replace(POLICY, rank_limit=64, dtype=dtype))
    adapter = read_file(case.peft / "adapter_model.safetensors", case.spec, parts.limits)
    parts.slots.store(1, lay_out(adapter, parts.limits, parts.kernels))
    return logits_of(parts, [(0, len(PROMPT))], slot=1)


def merged(case: Case, dtype: Literal["float32", "bfloat16"]) -> torch.Tensor:
    parts = build(case.merged, msgspec.structs.replace(POLICY, slots=1, rank_limit=1, dtype=dtype))
    return logits_of(parts, [(0, len(PROMPT))])


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_in_float32_all_ways_agree(tiny_folder: Path, tmp_path: Path, option: tuple[str, RandomAdapter]) -> None:
    made = case(tiny_folder, tmp_path, option, torch.float32)
    base, expected = reference(made.base), reference(made.base, made.peft)
    assert (expected - base).abs().max() > 0.1, "this adapter does too little to prove anything"
    ours = unmerged(made, "float32")
    assert_close(ours, expected)
    assert_close(merged(made, "float32"), ours)
    assert_close(reference(made.merged), expected)


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_in_bfloat16_merged_stays_near_unmerged(
    tiny_folder: Path, tmp_path: Path, option: tuple[str, RandomAdapter]
) -> None:
    made = case(tiny_folder, tmp_path, option, torch.bfloat16)
    ours = unmerged(made, "bfloat16")
    assert_close(merged(made, "bfloat16"), ours, atol=0.1 * float(ours.abs().max()), rtol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_the_folder_holds_what_peft_merges(tiny_folder: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    """Tensor by tensor. PEFT computes in the weights' own dtype, so that 16 bits differ by their rounding."""
    option = ("biases", RandomAdapter(seed=20, use_rslora=True, **PATTERNS))
    made = case(tiny_folder, tmp_path, option, dtype)
    loaded = AutoModelForCausalLM.from_pretrained(made.base, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(loaded, made.peft).merge_and_unload().state_dict()
    for name, tensor in load_file(made.merged / "model.safetensors").items():
        rtol, atol = (1e-5, 1e-6) if dtype == torch.float32 else (2**-8, 1e-6)
        torch.testing.assert_close(tensor.float(), theirs[name].float(), rtol=rtol, atol=atol, msg=name)


def test_a_scale_that_is_wrong_is_far_outside_of_every_tolerance(tiny_folder: Path, tmp_path: Path) -> None:
    made = case(tiny_folder, tmp_path, OPTIONS["rank 16"], torch.bfloat16)
    doubled = msgspec.structs.replace(made.spec, alpha=2 * made.spec.alpha)
    merge_folder(made.base, made.peft / "adapter_model.safetensors", doubled, tmp_path / "doubled")
    wrong = merged(msgspec.structs.replace(made, merged=tmp_path / "doubled"), "bfloat16")
    ours = unmerged(made, "bfloat16")
    assert (ours - wrong).abs().max() > 0.3 * ours.abs().max()
