"""Which rank and which scale one module has, as PEFT picks them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from services.replica_worker.engine.port import AdapterSpec
from shared.merging.terms import rank_of, scale_of

Q3 = "model.layers.3.self_attn.q_proj"


def spec(**patterns: Mapping[str, float]) -> AdapterSpec:
    return AdapterSpec(
        adapter_id="a", digest="d" * 64, base_model_hash="b" * 64, rank=8, alpha=16.0, target_modules=("q_proj",),
        **patterns,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["q_proj", "self_attn.q_proj", "3.self_attn.q_proj", Q3])
def test_a_pattern_is_a_whole_name_or_its_end_after_a_dot(name: str) -> None:
    assert rank_of(spec(rank_pattern={name: 4}), Q3) == 4
    assert scale_of(spec(rank_pattern={name: 4}), Q3) == 4.0
    assert scale_of(spec(alpha_pattern={name: 32.0}), Q3) == 4.0


@pytest.mark.parametrize("name", ["proj", "_proj", "layers.3", "13.self_attn.q_proj", "attn.q_proj"])
def test_a_part_of_a_name_is_no_pattern_for_it(name: str) -> None:
    assert rank_of(spec(rank_pattern={name: 4}), Q3) == 8
    assert scale_of(spec(alpha_pattern={name: 32.0}), Q3) == 2.0


def test_the_first_pattern_that_fits_wins() -> None:
    assert rank_of(spec(rank_pattern={"v_proj": 2, "q_proj": 4, "self_attn.q_proj": 16}), Q3) == 4
