"""What the names of PEFT's tensors say."""

from __future__ import annotations

import pytest

from shared.lora_names import Half, Place, by_pattern, ends_of, half_of, is_plain_name, means, parts_of, tensor_name

Q1 = Place(1, "self_attn", "q_proj")


def test_a_name_and_its_half_lead_to_each_other() -> None:
    for side in "AB":
        assert half_of(tensor_name(Q1, side)) == Half(Q1, side)
    assert parts_of(tensor_name(Q1, "A")) == (1, "self_attn.q_proj", "A")


@pytest.mark.parametrize(
    "name",
    [
        "", "model.layers.1.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.01.mlp.up_proj.lora_A.weight",
        "base_model.model.model.layers.1.self_attn.q_proj.lora_A.default.weight",
        "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight\n",
        "base_model.model.model.layers.100000.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.\u0661.self_attn.q_proj.lora_A.weight",
    ],
)  # fmt: skip
def test_c06_what_is_no_lora_tensor_has_no_parts(name: str) -> None:
    assert parts_of(name) is None
    assert half_of(name) is None


def test_a_module_in_another_block_than_its_own_is_none() -> None:
    assert half_of("base_model.model.model.layers.1.mlp.q_proj.lora_A.weight") is None
    assert half_of("base_model.model.model.layers.1.mlp.other.lora_A.weight") == Half(Place(1, "mlp", "other"), "A")


def test_a_plain_name_means_the_modules_that_end_in_it() -> None:
    assert list(ends_of(Q1.path)) == [
        "model.layers.1.self_attn.q_proj",
        "layers.1.self_attn.q_proj",
        "1.self_attn.q_proj",
        "self_attn.q_proj",
        "q_proj",
    ]
    for name in ends_of(Q1.path):
        assert means(name, Q1.path)
        assert is_plain_name(name)
    for name in ("proj", "v_proj", "attn.q_proj", "0.self_attn.q_proj"):
        assert not means(name, Q1.path)
    assert not any(is_plain_name(name) for name in ("", ".q_proj", "q_proj.", "a..b", "q.*", "q_proj\n", "q-proj"))


def test_the_first_pattern_that_means_a_module_counts() -> None:
    patterns = {"v_proj": 1, "self_attn.q_proj": 2, "q_proj": 3}
    assert by_pattern(patterns, Q1.path, 9) == 2
    assert by_pattern(patterns, "model.layers.0.mlp.up_proj", 9) == 9
