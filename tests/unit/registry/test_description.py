"""Everything that can be wrong with an announcement by itself."""

from __future__ import annotations

import hashlib
import math

import msgspec
import pytest

from services.registry.core.files.verify import verify
from tests.support.adapter_files import BASE, Recipe, announcement, file_of, peft_config
from tests.support.verifying import AROUND, GOOD, LIMITS, defects, facts, zeros


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
    assert "'.*_prox'" in defects(alpha_pattern={".*_prox": 4.0})["pattern_unused"]
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


def test_a_message_never_carries_a_whole_book() -> None:
    said = announcement(GOOD, target_modules=("x" * 5000,), rank_pattern={"y" * 5000: 0}, alias="z" * 5000)
    found = verify(said, AROUND, facts(file_of(**{"w" * 5000: zeros(1)})), LIMITS)
    assert len(found) > 5
    assert max(len(one.message) for one in found) <= 500
    assert max(len(one.field or "") for one in found) <= 128
