"""Our forward pass against the libraries everybody trains with: the same folder, the same adapter file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from safetensors.torch import load_file, save_file

from services.replica_worker.engine.port import AdapterSpec
from services.replica_worker.engine.torch.adapter import read_file, scale_of
from services.replica_worker.engine.torch.build import Parts, build
from services.replica_worker.engine.torch.layout import lay_out
from tests.support.parity import POLICY, VARIANTS, assert_close, logits_of, reference, variant_folder
from tests.support.peft_files import peft_folder
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.tiny_model import LAYERS, module_shapes

ADAPTERS = {
    "plain": RandomAdapter(seed=1),
    "c45 rslora": RandomAdapter(seed=2, use_rslora=True),
    "c50 patterns": RandomAdapter(
        seed=3, rank_pattern={"q_proj": 32, "down_proj": 4}, alpha_pattern={"q_proj": 5.0, "up_proj": 3.0}
    ),
    "two modules": RandomAdapter(seed=4, targets=("q_proj", "v_proj"), alpha=7.0),
}


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
        parts.slots.store(slot, lay_out(read_file(path, spec, parts.limits), parts.limits, parts.kernels))
    return parts, path, spec


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks transformers for it
@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS.keys())
def test_c11_adapted_logits_equal_those_of_peft(tiny_folder: Path, tmp_path: Path, adapter: RandomAdapter) -> None:
    parts, path, spec = loaded(tiny_folder, tmp_path, adapter)
    expected = reference(tiny_folder, peft_folder(tmp_path / "peft", path, spec))
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
