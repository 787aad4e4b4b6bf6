"""Everything that can be wrong with an adapter, each named, and all of it at once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from services.registry.core.defects import MOST_DEFECTS, defect
from services.registry.core.description import Surroundings
from services.registry.core.verify import FileFacts, Limits, verify
from services.registry.io.inspection import Inspection
from tests.support.adapter_files import BASE, Recipe, announcement, file_of, name_of, peft_config

AROUND = Surroundings(tenant_known=True, base=BASE, base_names=frozenset({BASE.name}))
LIMITS = Limits(largest_file_bytes=1 << 20)
GOOD = file_of()
A = name_of(0, "q_proj", "A")
B = name_of(0, "q_proj", "B")


def facts(file: bytes, config: bytes | None = None) -> FileFacts:
    """As the registry reads it."""
    reading = Inspection()
    reading.feed(file)
    return msgspec.structs.replace(reading.facts(), config=config)


def defects(
    file: bytes = GOOD, around: Surroundings = AROUND, config: bytes | None = None, **said: Any
) -> dict[str, str]:
    """The messages by their code."""
    found = verify(announcement(file, **said), around, facts(file, config), LIMITS)
    return {one.code: one.message for one in found}


def zeros(*shape: int, dtype: Any = np.float16) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


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


# -- the description -----------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter_id", ["", "../../etc", "/etc/x", "a/../b", "a\0b", "x" * 4096, "a b", "a..b", ".a"])
def test_c54_an_adapter_id_is_never_a_path(adapter_id: str) -> None:
    message = defects(adapter_id=adapter_id)["adapter_id_invalid"]
    assert len(message) < 300


def test_an_unknown_tenant_is_refused() -> None:
    around = msgspec.structs.replace(AROUND, tenant_known=False)
    assert "'acme'" in defects(around=around)["tenant_unknown"]
    assert "tenant_invalid" in defects(tenant_id="Acme")


def test_c49_a_base_that_is_not_served_is_refused_by_its_hash() -> None:
    around = msgspec.structs.replace(AROUND, base=None)
    assert BASE.base_model_hash in defects(around=around)["base_model_unknown"]
    assert "base_model_invalid" in defects(around=around, base_model_hash="small-base")


@pytest.mark.parametrize("path", [None, "/somewhere/else", "another/model"])
def test_c49_the_path_in_the_config_decides_nothing(path: str | None) -> None:
    assert defects(config=peft_config(announcement(GOOD), base_model_name_or_path=path)) == {}


def test_c49_the_same_path_with_another_hash_is_refused() -> None:
    config = peft_config(announcement(GOOD), base_model_name_or_path=BASE.name)
    around = msgspec.structs.replace(AROUND, base=None)
    assert "base_model_unknown" in defects(around=around, config=config, base_model_hash="0" * 64)


@pytest.mark.parametrize("rank", [17, 64])
def test_c46_a_rank_over_every_class_is_refused_with_both_numbers(rank: int) -> None:
    message = defects(file_of(Recipe(rank=rank)), rank=rank)["rank_too_high"]
    assert str(rank) in message
    assert "16" in message


@pytest.mark.parametrize("rank", [0, -1])
def test_c46_a_rank_below_one_is_refused(rank: int) -> None:
    assert str(rank) in defects(rank=rank)["rank_invalid"]


@pytest.mark.parametrize("rank", [4, 8, 9, 16])
def test_c46_a_rank_that_fits_a_class_is_taken(rank: int) -> None:
    assert defects(file_of(Recipe(rank=rank)), rank=rank) == {}


def test_c45_rslora_is_taken() -> None:
    said = announcement(GOOD, use_rslora=True)
    assert defects(use_rslora=True, config=peft_config(said)) == {}


def test_c50_the_largest_rank_of_a_pattern_counts() -> None:
    recipe = Recipe(rank_pattern={"q_proj": 64})
    message = defects(file_of(recipe), rank_pattern={"q_proj": 64})["rank_too_high"]
    assert "64" in message
    assert "16" in message


def test_c50_patterns_decide_shapes() -> None:
    recipe = Recipe(rank_pattern={"q_proj": 8})
    assert defects(file_of(recipe), rank_pattern={"q_proj": 8}, alpha_pattern={"q_proj": 4.0}) == {}
    assert "shape_invalid" in defects(file_of(recipe))
    assert "shape_invalid" in defects(GOOD, rank_pattern={"q_proj": 8})


def test_c50_patterns_that_mean_nothing_are_refused() -> None:
    assert "'k_proj'" in defects(rank_pattern={"k_proj": 4})["pattern_unused"]
    assert "'.*_proj'" in defects(alpha_pattern={".*_proj": 4.0})["pattern_invalid"]
    assert "rank_invalid" in defects(rank_pattern={"q_proj": 0})
    assert "alpha_invalid" in defects(alpha_pattern={"q_proj": 0.0})


@pytest.mark.parametrize("alpha", [0.0, -8.0, math.inf, math.nan])
def test_an_alpha_that_is_no_positive_number_is_refused(alpha: float) -> None:
    assert "alpha_invalid" in defects(alpha=alpha)


def test_c07_a_target_that_the_base_lacks_is_refused_and_named() -> None:
    file = file_of(Recipe(targets=("q_proj", "down_proj")))
    message = defects(file, target_modules=("q_proj", "down_proj", "c_attn"))["module_unknown"]
    assert "'c_attn'" in message
    assert "q_proj" in message


@pytest.mark.parametrize("targets", [(), ("q_proj", "q_proj", "down_proj"), (".*",), ("q_proj", "")])
def test_targets_are_a_list_of_names(targets: tuple[str, ...]) -> None:
    assert set(defects(target_modules=targets)) & {"targets_empty", "targets_repeated", "target_invalid"}


@pytest.mark.parametrize("checksum", ["", "abc", "A" * 64, "../../etc"])
def test_a_checksum_is_a_sha256(checksum: str) -> None:
    assert "checksum_invalid" in defects(checksum=checksum)


def test_a_wrong_checksum_is_refused_with_the_right_one() -> None:
    assert hashlib.sha256(GOOD).hexdigest() in defects(checksum="0" * 64)["checksum_mismatch"]


@pytest.mark.parametrize(
    "alias",
    ["acme/a,b", "acme/a:b:c", "acme/a b", "acme/a|b", "acme/Support", "acme/sup\u0440ort", "acme", "acme/", "../x",
     "acme/..", "acme/" + "x" * 5000, "acme/a\0"],
)  # fmt: skip
def test_c62_an_alias_outside_the_grammar_is_refused(alias: str) -> None:
    assert "alias_invalid" in defects(alias=alias)


def test_c62_an_alias_may_not_be_the_name_of_a_base() -> None:
    around = msgspec.structs.replace(AROUND, base_names=frozenset({"acme/base"}))
    assert "alias_is_base_model" in defects(around=around, alias="acme/base")


def test_c62_an_alias_belongs_to_its_tenant() -> None:
    assert "'globex'" in defects(alias="globex/support")["alias_foreign"]
    assert defects(alias="acme/support:prod") == {}


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


# -- adapter_config.json -------------------------------------------------------------------------------

DISAGREEMENTS: Mapping[str, Any] = {
    "r": 8,
    "lora_alpha": 16.0,
    "use_rslora": True,
    "rank_pattern": {"q_proj": 2},
    "alpha_pattern": {"q_proj": 2},
    "target_modules": ["q_proj"],
}


@pytest.mark.parametrize("field", DISAGREEMENTS)
def test_a_config_that_says_otherwise_is_refused(field: str) -> None:
    found = defects(config=peft_config(announcement(GOOD), **{field: DISAGREEMENTS[field]}))
    assert set(found) == {"config_disagrees"}


@pytest.mark.parametrize(
    "extra", [{"target_modules": "all-linear"}, {"rank_pattern": None}, {"layers_to_transform": [0]}]
)
def test_a_config_that_says_the_same_in_other_words_is_taken(extra: dict[str, Any]) -> None:
    assert defects(config=peft_config(announcement(GOOD), **extra)) == {}


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 200_000, b" " * (1 << 20) + b"{}"])
def test_a_config_that_is_no_object_is_refused(text: bytes) -> None:
    assert set(defects(config=text)) == {"config_invalid"}


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"peft_type": "IA3"}, "not_lora"),
        ({"fan_in_fan_out": True}, "feature_not_served"),
        ({"layer_replication": [[0, 1]]}, "feature_not_served"),
        ({"trainable_token_indices": [1]}, "module_not_adaptable"),
        ({"init_lora_weights": "pissa_niter_4"}, "feature_not_served"),
        ({"lora_bias": True}, "bias"),
    ],
)
def test_a_config_that_asks_for_more_than_lora_is_refused(extra: dict[str, Any], code: str) -> None:
    assert set(defects(config=peft_config(announcement(GOOD), **extra))) == {code}


def test_a_message_never_carries_a_whole_book() -> None:
    said = announcement(GOOD, target_modules=("x" * 5000,), rank_pattern={"y" * 5000: 0}, alias="z" * 5000)
    found = verify(said, AROUND, facts(file_of(**{"w" * 5000: zeros(1)})), LIMITS)
    assert len(found) > 5
    assert max(len(one.message) for one in found) <= 500
    assert max(len(one.field or "") for one in found) <= 128
