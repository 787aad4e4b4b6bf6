"""Every figure of the spec's section 1, worked out from the two presets.

The spec rounds as a person does: "two digits" and "three digits" below are significant digits, "up" is a ceiling, and
what it writes out in full has to be equal in full.
"""

from __future__ import annotations

import msgspec
import pytest

from loadtest.capacity import rates, sizes
from loadtest.capacity.lines import groups
from loadtest.capacity.plan import Plan, plan
from loadtest.capacity.presets import preset

FLEET_A = plan(preset("fleet-a"))
FLEET_B = plan(preset("fleet-b"))
LATER_B = plan(msgspec.structs.replace(preset("fleet-b"), adapters=20_000))


def figures(plan: Plan) -> dict[str, float]:
    return {figure.name: figure.value for group in groups(plan) for figure in group.figures}


A, B, LATER = figures(FLEET_A), figures(FLEET_B), figures(LATER_B)


def rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


@pytest.mark.parametrize(
    ("found", "spec"),
    [
        (A["q_values"], 131_072),
        (A["gate_values"], 241_664),
        (A["layer_values"], 1_249_280),
        (A["adapter_values"], 39_976_960),
        (A["kv_token_bytes"], 524_288),
        (A["fitting"], 355),
        (A["slots"], 250),
        (A["replica_tokens_per_s"], 640),
        (A["prefill_tokens_per_s"], 8_000),
        (A["output_tokens_per_s"], 10_000),
        (A["prompt_tokens_per_s"], 30_000),
        (A["replicas"], 26),
        (A["owned"], 385),
        (A["usd_per_hour"], 65),
        (A["dedicated_usd_per_hour"], 12_500),
        (A["hot_owners"], 4),
        (A["base_bytes"], 14e9),
        (B["kv_token_bytes"], 131_072),
        (B["output_tokens_per_s"], 150_000),
        (B["busy"], 30),
        (B["replicas"], 40),
        (B["usd_per_month"], 73_000),
        (B["dedicated_usd_per_month"], 3.65e6),
        (B["times_cheaper"], 50),
    ],
)  # fmt: skip
def test_what_the_spec_writes_out(found: float, spec: float) -> None:
    assert found == spec


@pytest.mark.parametrize(
    ("found", "digits", "spec"),
    [
        (A["adapter_bytes"], 2, 80e6),
        (A["adapters_bytes"], 2, 400e9),
        (A["merged_bytes"], 2, 70e12),
        (A["kv_bytes"], 3, 33.6e9),
        (A["room_bytes"], 3, 28.4e9),
        (A["slots_bytes"], 2, 20e9),
        (A["wide_slots_bytes"], 2, 80e9),
        (A["wide_slots_bytes"] / A["slots"], 2, 320e6),
        (A["decoding"], 3, 15.6),
        (A["prefilling"], 2, 3.8),
        (A["busy"], 3, 19.4),
        (A["ram_bytes"], 2, 31e9),
        (A["store_s"], 2, 0.4),
        (A["disk_s"], 2, 0.040),
        (A["ram_s"], 1, 0.008),
        (A["base_s"], 2, 14),
        (B["layer_values"], 3, 1.31e6),
        (B["adapter_values"], 2, 42e6),
        (B["adapter_bytes"], 2, 84e6),
        (B["adapters_bytes"], 3, 168e9),
        (B["slots_bytes"], 2, 8.4e9),
        (LATER["adapters_bytes"], 2, 1.7e12),
        (B["top_share"], 2, 0.80),
    ],
)  # fmt: skip
def test_what_the_spec_rounds(found: float, digits: int, spec: float) -> None:
    assert rounded(found, digits) == pytest.approx(spec)


def test_what_the_spec_gives_as_a_range() -> None:
    assert 0.003 <= B["ram_s"] <= 0.005
    assert 0.5 <= B["store_s"] <= 1.5
    assert 0.10 <= A["unmerged_overhead"] <= 0.30


def test_the_arithmetic_of_an_update() -> None:
    model = FLEET_A.question.model
    assert sizes.matrix_values(16, *model.sides("q_proj")) == 131_072
    assert model.sides("q_proj") == (4096, 4096)  # 16.8 million multiply-adds
    assert A["update_share"] < 0.01


def test_all_of_fleet_b_fits_host_ram_and_not_gpu_memory() -> None:
    assert B["adapters_bytes"] > FLEET_B.question.gpu_bytes > B["ram_bytes"]


def test_a_merged_replica_is_worth_it_above_what_an_unmerged_one_makes() -> None:
    """The spec gives a customer replicas of its own above 640 token/s; with Zipf 1.0 the first one is there."""
    assert A["filling"] == 1
    assert A["merged_tokens_per_s"] == 800


def test_a_batch_over_a_thousand_adapters_holds_about_25_of_them() -> None:
    fewer = figures(plan(msgspec.structs.replace(FLEET_A.question, adapters=1000)))
    steeper = figures(plan(msgspec.structs.replace(FLEET_A.question, adapters=1000, zipf=1.5)))
    assert rounded(fewer["distinct"], 2) == 25
    assert rounded(steeper["distinct"], 2) == 13


def test_owners_grow_with_what_a_customer_asks_for() -> None:
    assert [rates.owners_for(tokens, 640, 2) for tokens in (10, 1280, 1281, 2000)] == [2, 2, 3, 4]


def test_moving_one_replica_moves_its_share() -> None:
    assert A["moved_share"] == pytest.approx(1 / 26)
