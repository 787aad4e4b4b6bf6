"""Everything that can be wrong with a weights file, each named, and all of it at once."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from services.registry.core.defects import MOST_DEFECTS, defect
from services.registry.core.files.verify import Limits, verify
from tests.support.adapter_files import BASE, Recipe, announcement, file_of, name_of, peft_config
from tests.support.verifying import AROUND, GOOD, LIMITS, defects, facts, zeros

A = name_of(0, "q_proj", "A")
B = name_of(0, "q_proj", "B")


def test_a_right_adapter_has_no_defect() -> None:
    assert defects() == {}
    assert defects(config=peft_config(announcement(GOOD))) == {}


def test_an_adapter_on_a_single_layer_has_no_defect() -> None:
    assert defects(file_of(Recipe(layers=(1,)))) == {}


def test_targets_may_be_dotted_names() -> None:
    assert defects(target_modules=("self_attn.q_proj", "mlp.down_proj")) == {}
    assert (
        defects(file_of(Recipe(layers=(0,), targets=("q_proj",))), target_modules=("model.layers.0.self_attn.q_proj",))
        == {}
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_c63a_16_and_32_bit_floats_are_taken(dtype: type[np.generic]) -> None:
    assert defects(file_of(Recipe(dtype=dtype))) == {}


def test_c63a_mixed_dtypes_are_taken() -> None:
    assert defects(file_of(**{A: zeros(4, 16, dtype=np.float32)})) == {}


def test_c63a_other_dtypes_are_refused_and_named() -> None:
    assert A in defects(file_of(**{A: zeros(4, 16, dtype=np.float64)}))["dtype_invalid"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_c63a_a_value_that_is_not_finite_is_refused_and_named(value: float, dtype: Any) -> None:
    broken = zeros(16, 4, dtype=dtype)
    broken[15, 3] = value
    assert B in defects(file_of(**{B: broken}))["not_finite"]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    broken = file_of(Recipe(layers=(0,)), **{A: zeros(5, 16), "stray": zeros(1)})
    found = defects(broken, rank=0, alpha=-1.0, checksum="0" * 64, target_modules=("q_proj", "c_attn"), version="")
    assert set(found) >= {
        "rank_invalid", "alpha_invalid", "checksum_mismatch", "module_unknown", "version_invalid", "tensor_unknown",
        "shape_invalid", "module_not_targeted", "target_without_tensors",
    }  # fmt: skip


def test_there_is_an_end_to_what_is_said() -> None:
    found = verify(
        announcement(GOOD),
        AROUND,
        facts(file_of(**{f"stray{at}": zeros(1) for at in range(MOST_DEFECTS + 20)})),
        LIMITS,
    )
    assert len(found) == MOST_DEFECTS + 1
    assert "21 more" in found[-1].message


def test_a_file_that_could_not_be_opened_is_one_defect_among_the_others() -> None:
    found = verify(announcement(GOOD, rank=0), AROUND, defect("weights_missing", "There is no file."), LIMITS)
    assert [one.code for one in found] == ["rank_invalid", "weights_missing"]


# -- the file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 8, len(GOOD) // 2, len(GOOD) - 1])
def test_c51_a_file_that_is_cut_short_is_named_by_checksum_and_header(length: int) -> None:
    cut = verify(announcement(GOOD), AROUND, facts(GOOD[:length]), LIMITS)
    assert {"checksum_mismatch", "not_safetensors"} <= {one.code for one in cut}


def test_a_file_over_the_limit_is_refused() -> None:
    found = verify(announcement(GOOD), AROUND, facts(GOOD), Limits(largest_file_bytes=100))
    assert [one.code for one in found] == ["file_too_large"]


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight",
        "base_model.model.model.layers.0.mlp.q_proj.lora_A.weight",
        "base_model.model.model.layers.x.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.\u0661.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight",
        "base_model.model.model.layers.00.self_attn.q_proj.lora_A.weight",
    ],
)
def test_c06_a_tensor_with_an_unknown_name_is_refused_and_named(name: str) -> None:
    assert repr(name) in defects(file_of(**{name: zeros(4, 16)}))["tensor_unknown"]


def test_c06_a_file_in_which_nothing_maps_is_refused() -> None:
    tensors = {"unet.q.lora_A.weight": zeros(4, 16)}
    found = defects(file_of(Recipe(targets=()), **tensors))
    assert {"no_tensors", "tensor_unknown", "target_without_tensors"} <= set(found)


def test_c06_modules_mapped_equal_modules_in_the_file_and_targets() -> None:
    more = file_of(Recipe(targets=("q_proj", "down_proj", "v_proj")))
    assert "self_attn.v_proj" in defects(more)["module_not_targeted"]
    fewer = file_of(Recipe(targets=("q_proj",)))
    assert "'down_proj'" in defects(fewer)["target_without_tensors"]


def test_one_half_of_a_pair_is_refused() -> None:
    file = file_of(Recipe(layers=(0,)), **{name_of(1, "q_proj", "A"): zeros(4, 16)})
    assert name_of(1, "q_proj", "B") in defects(file)["half_missing"]


@pytest.mark.parametrize(
    ("name", "shape"),
    [(A, (16, 4)), (A, (5, 16)), (A, (4, 17)), (A, (64,)), (A, (4, 16, 1)), (A, ()), (B, (4, 16)), (B, (0, 4))],
)
def test_a_wrong_shape_is_refused_with_the_right_one(name: str, shape: tuple[int, ...]) -> None:
    message = defects(file_of(**{name: zeros(*shape)}))["shape_invalid"]
    assert str(list(shape)) in message
    assert ("[4, 16]" if name == A else "[16, 4]") in message


def test_a_layer_that_the_base_lacks_is_refused() -> None:
    assert "2 layers" in defects(file_of(Recipe(layers=(0, 1, 2))))["layer_unknown"]


def test_c07_a_module_in_the_file_that_the_base_lacks_is_refused() -> None:
    base = msgspec.structs.replace(BASE, modules={"q_proj": BASE.modules["q_proj"]})
    around = msgspec.structs.replace(AROUND, base=base)
    assert "'down_proj'" in defects(around=around)["module_unknown"]


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.lm_head.weight",
        "base_model.model.lm_head.lora_A.weight",
        "base_model.model.model.embed_tokens.weight",
        "base_model.model.model.embed_tokens.lora_embedding_A",
        "base_model.model.model.layers.0.mlp.modules_to_save.weight",
    ],
)
def test_c42_what_is_no_linear_layer_is_refused_and_named(name: str) -> None:
    assert repr(name) in defects(file_of(**{name: zeros(4, 16)}))["module_not_adaptable"]


def test_c42_modules_to_save_in_the_config_are_refused() -> None:
    config = peft_config(announcement(GOOD), modules_to_save=["lm_head"])
    assert "modules_to_save" in defects(config=config)["module_not_adaptable"]


def test_c43_dora_is_refused() -> None:
    assert "use_dora" in defects(config=peft_config(announcement(GOOD), use_dora=True))["dora"]
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"
    assert name in defects(file_of(**{name: zeros(16)}))["dora"]


def test_a_bias_is_refused() -> None:
    assert "bias" in defects(config=peft_config(announcement(GOOD), bias="lora_only"))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias"
    assert name in defects(file_of(**{name: zeros(16)}))["bias"]
