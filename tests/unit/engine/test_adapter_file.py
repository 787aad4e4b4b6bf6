"""Adapter files: everything that could give wrong numbers is refused by name, in one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from services.replica_worker.engine.port import AdapterSpec, AdapterUnusable
from services.replica_worker.engine.torch.adapter import (
    AdapterLimits,
    CheckedAdapter,
    rank_of,
    read_adapter,
    read_file,
    scale_of,
)
from services.replica_worker.engine.torch.config import read_config
from services.replica_worker.engine.torch.kernels.cpu import CpuKernels
from services.replica_worker.engine.torch.layout import lay_out
from tests.support.adapter_files import crafted
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.tiny_model import LAYERS

BASE_HASH = "b" * 64
PREFIX = "base_model.model.model.layers.0"
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def limits(tiny_folder: Path) -> AdapterLimits:
    return AdapterLimits(model=read_config(tiny_folder), base_model_hash=BASE_HASH, rank_limit=16, dtype=torch.bfloat16)


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, AdapterSpec]:
    return write_adapter(tmp_path, RandomAdapter(seed=0), BASE_HASH)


def refused(path: Path, spec: AdapterSpec, limits: AdapterLimits, sentence: str) -> None:
    """Both ways of reading a file: as an adapter lies in a slot, and as tensors."""
    with pytest.raises(AdapterUnusable, match=sentence):
        lay_out(read_file(path, spec, limits), limits, CpuKernels(1))
    with pytest.raises(AdapterUnusable, match=sentence):
        read_adapter(path, spec, limits)


def unknown_prefix(tensors: Tensors) -> None:
    tensors["transformer.h.0.attn.lora_A.weight"] = torch.zeros(8, 128)


def whole_head(tensors: Tensors) -> None:
    tensors["base_model.model.lm_head.weight"] = torch.zeros(320, 128)


def dora(tensors: Tensors) -> None:
    tensors[f"{PREFIX}.self_attn.q_proj.lora_magnitude_vector"] = torch.zeros(128)


def layer_too_many(tensors: Tensors) -> None:
    for side, shape in (("A", (8, 128)), ("B", (128, 8))):
        tensors[f"base_model.model.model.layers.{LAYERS}.self_attn.q_proj.lora_{side}.weight"] = torch.zeros(shape)


def half_a_pair(tensors: Tensors) -> None:
    del tensors[f"{PREFIX}.mlp.up_proj.lora_B.weight"]


def wrong_shape(tensors: Tensors) -> None:
    tensors[f"{PREFIX}.mlp.up_proj.lora_B.weight"] = torch.zeros(255, 8)


def another_rank(tensors: Tensors) -> None:
    tensors[f"{PREFIX}.mlp.up_proj.lora_A.weight"] = torch.zeros(4, 128)


def not_a_number(tensors: Tensors) -> None:
    tensors[f"{PREFIX}.mlp.up_proj.lora_A.weight"][3, 5] = float("nan")


def infinite(tensors: Tensors) -> None:
    tensors[f"{PREFIX}.mlp.up_proj.lora_B.weight"][3, 5] = float("-inf")


def too_large_for_16_bit(tensors: Tensors) -> None:
    tensors[f"{PREFIX}.mlp.up_proj.lora_B.weight"] = torch.full((256, 8), 3.4e38)


def integers(tensors: Tensors) -> None:
    tensors[f"{PREFIX}.mlp.up_proj.lora_A.weight"] = torch.zeros(8, 128, dtype=torch.int8)


def nothing(tensors: Tensors) -> None:
    tensors.clear()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        pytest.param(unknown_prefix, "transformer.h.0.attn.lora_A.weight is not a LoRA tensor", id="c06 prefix"),
        pytest.param(layer_too_many, "layers.2.self_attn.q_proj does not exist", id="c07 layer"),
        pytest.param(whole_head, "base_model.model.lm_head.weight is not a LoRA", id="c42 lm_head"),
        pytest.param(dora, "lora_magnitude_vector is not a LoRA", id="c43 dora"),
        pytest.param(half_a_pair, "layers.0.mlp.up_proj.lora_B is missing", id="half a pair"),
        pytest.param(wrong_shape, r"up_proj.lora_B is \(255, 8\), expected \(256, 8\)", id="shape"),
        pytest.param(another_rank, r"up_proj.lora_A is \(4, 128\), expected \(8, 128\)", id="rank"),
        pytest.param(not_a_number, "up_proj.lora_A holds NaN or Inf", id="c63a nan"),
        pytest.param(infinite, "up_proj.lora_B holds NaN or Inf", id="c63a inf"),
        pytest.param(too_large_for_16_bit, "up_proj.lora_B holds NaN or Inf", id="c63a overflow"),
        pytest.param(integers, "up_proj.lora_A.weight is I8, not a 16- or 32-bit float", id="integers"),
        pytest.param(nothing, "holds no tensors", id="empty"),
    ],
)
def test_a_file_that_cannot_be_applied_is_refused(
    written: tuple[Path, AdapterSpec], limits: AdapterLimits, damage: Callable[[Tensors], None], sentence: str
) -> None:
    path, spec = written
    tensors = load_file(path)
    damage(tensors)
    save_file(tensors, path)
    refused(path, spec, limits, sentence)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param({"target_modules": ("q_proj",)}, "down_proj is in the file but not", id="c06 more modules"),
        pytest.param(
            {"target_modules": (*"abc", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")},
            "a is a target module but the file has no",
            id="c06 fewer modules",
        ),
        pytest.param({"rank": 64}, "rank 64 is outside this pool's 1 to 16", id="c46 rank"),
        pytest.param({"rank_pattern": {"q_proj": 64}}, "rank 64 is outside", id="c50 largest rank counts"),
        pytest.param({"rank_pattern": {"(a+)+$": 4}}, "is not a plain module name", id="regular expression"),
        pytest.param({"base_model_hash": "c" * 64}, "was trained on base ccc", id="c49 base hash"),
    ],
)
def test_a_spec_that_does_not_fit_is_refused(
    written: tuple[Path, AdapterSpec], limits: AdapterLimits, changes: dict[str, object], sentence: str
) -> None:
    path, spec = written
    refused(path, msgspec.structs.replace(spec, **changes), limits, sentence)


@pytest.mark.parametrize("keep", [0, 8, 0.5, -1], ids=["nothing", "8 bytes", "half", "all but one byte"])
def test_c51_a_file_cut_short_is_refused(written: tuple[Path, AdapterSpec], limits: AdapterLimits, keep: float) -> None:
    path, spec = written
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep) if keep == 0.5 else int(keep)])
    refused(path, spec, limits, "is not a whole safetensors file")


@pytest.mark.parametrize("length", [10**9, 3, 2**63, 2**64 - 1])
def test_c51_a_header_length_that_lies_is_refused(
    written: tuple[Path, AdapterSpec], limits: AdapterLimits, length: int
) -> None:
    path, spec = written
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    refused(path, spec, limits, "is not a whole safetensors file")


def entry(*offsets: int, shape: object = (1, 2), dtype: object = "F16") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({"a": entry(0, 4), "b": entry(0, 4)}, id="the same bytes twice"),
        pytest.param({"a": entry(0, 4), "b": entry(2, 6, shape=(2,))}, id="overlap"),
        pytest.param({"a": entry(0, 4), "b": entry(6, 8, shape=(1,))}, id="a hole"),
        pytest.param({"a": entry(0, 4)}, id="bytes that are nobody's"),
        pytest.param({"a": entry(0, 4), "b": entry(4, 12, shape=(4,))}, id="beyond the end"),
        pytest.param({"a": entry(0, 8, shape=(2,))}, id="more bytes than the shape takes"),
        pytest.param({"a": entry(0, 8, shape=(2**32, 2**32))}, id="a product that wraps around"),
        pytest.param({"a": entry(0, 8, shape=(-2, -2))}, id="a negative shape"),
        pytest.param({"a": entry(0, 8, shape=(-4,))}, id="a negative dimension"),
        pytest.param({"a": entry(0, 12, shape=(6,)), "b": entry(12, 8, shape=(0,))}, id="backwards"),
        pytest.param({"a": entry(-4, 4, shape=(4,))}, id="a negative place"),
        pytest.param({"a": entry(0, 4, 8)}, id="three offsets"),
        pytest.param({"a": entry(0, 8, shape="4")}, id="a shape that is none"),
        pytest.param({"a": entry(0, 8, shape=(4,), dtype=7)}, id="a dtype that is none"),
        pytest.param({"a": {"dtype": "F16"}}, id="fields missing"),
        pytest.param([], id="no object"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"{}", id="no tensors for the bytes"),
        pytest.param(b'{"a":' * 100_000, id="nested too deeply"),
    ],
)
def test_c51_a_header_that_does_not_fit_its_bytes_is_refused(
    written: tuple[Path, AdapterSpec], limits: AdapterLimits, header: object
) -> None:
    path, spec = written
    path.write_bytes(crafted(header, bytes(8)))
    refused(path, spec, limits, "is not a whole safetensors file")


def test_c51_a_file_that_shrinks_while_it_is_read_is_refused(
    written: tuple[Path, AdapterSpec], limits: AdapterLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, spec = written
    size = path.stat().st_size
    monkeypatch.setattr(os, "fstat", lambda fileno: SimpleNamespace(st_size=size + 2))
    refused(path, spec, limits, "it ended while it was read")


def test_c56_a_pickle_is_refused_unopened(
    written: tuple[Path, AdapterSpec], limits: AdapterLimits, tmp_path: Path
) -> None:
    pickled = tmp_path / "adapter_model.bin"
    torch.save({"x": torch.zeros(2)}, pickled)
    refused(pickled, written[1], limits, r"adapter_model.bin is not a whole safetensors file")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_c63a_float_files_are_converted_to_the_engines_dtype(
    tmp_path: Path, limits: AdapterLimits, dtype: torch.dtype
) -> None:
    path, spec = write_adapter(tmp_path, RandomAdapter(seed=0, dtype=dtype), BASE_HASH)
    adapter = read_adapter(path, spec, limits)
    assert {module.a.dtype for module in adapter.modules.values()} == {torch.bfloat16}


def test_only_some_layers_may_be_adapted(written: tuple[Path, AdapterSpec], limits: AdapterLimits) -> None:
    path, spec = written
    save_file({name: tensor for name, tensor in load_file(path).items() if ".layers.0." in name}, path)
    adapter: CheckedAdapter = read_adapter(path, spec, limits)
    assert {layer for layer, _ in adapter.modules} == {0}


def test_c50_patterns_pick_the_rank_and_the_scale_of_their_module() -> None:
    spec = AdapterSpec(
        adapter_id="a",
        digest="d",
        base_model_hash=BASE_HASH,
        rank=8,
        alpha=16.0,
        target_modules=("q_proj", "up_proj"),
        rank_pattern={"layers.1.self_attn.q_proj": 4, "q_proj": 2},
        alpha_pattern={"up_proj": 24.0},
    )
    places = [(0, "self_attn.q_proj"), (1, "self_attn.q_proj"), (0, "mlp.up_proj"), (0, "mlp.gate_proj")]
    assert [rank_of(spec, place) for place in places] == [2, 4, 8, 8]
    assert [scale_of(spec, place) for place in places] == [8.0, 4.0, 3.0, 2.0]


def test_c45_rslora_divides_by_the_root_of_the_rank() -> None:
    spec = AdapterSpec(
        adapter_id="a",
        digest="d",
        base_model_hash=BASE_HASH,
        rank=16,
        alpha=8.0,
        target_modules=("q_proj",),
        use_rslora=True,
    )
    assert scale_of(spec, (0, "self_attn.q_proj")) == 2.0
