"""What adapter_config.json may not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.adapter_files import announcement, peft_config
from tests.support.verifying import GOOD, defects

DISAGREEMENTS: Mapping[str, Any] = {
    "r": 8,
    "lora_alpha": 16.0,
    "use_rslora": True,
    "rank_pattern": {"q_proj": 2},
    "alpha_pattern": {"q_proj": 2},
    "target_modules": ["q_proj"],
}
OTHER_EXPRESSIONS = ("all-linear", r".*\.q_proj", "q_proj|down_proj")


@pytest.mark.parametrize("field", DISAGREEMENTS)
def test_a_config_that_says_otherwise_is_refused(field: str) -> None:
    found = defects(config=peft_config(announcement(GOOD), **{field: DISAGREEMENTS[field]}))
    assert set(found) == {"config_disagrees"}


@pytest.mark.parametrize("expression", OTHER_EXPRESSIONS)
def test_an_expression_in_a_config_that_means_other_modules_is_refused(expression: str) -> None:
    found = defects(config=peft_config(announcement(GOOD), target_modules=expression))
    assert set(found) == {"config_disagrees"}


@pytest.mark.parametrize(
    "extra",
    [
        {"target_modules": r".*\.(q|down)_proj"},
        {"target_modules": "all-linear", "exclude_modules": r".*\.([kvo]|gate|up)_proj"},
        {"target_modules": "all-linear", "exclude_modules": ["k_proj", "v_proj", "o_proj", "gate_proj", "up_proj"]},
        {"rank_pattern": None},
        {"layers_to_transform": [0]},
    ],
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
