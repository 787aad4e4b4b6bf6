"""Plans follow from their question, and a question without an answer says what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadtest.capacity.figures import said
from loadtest.capacity.lines import groups
from loadtest.capacity.model import NotPlannable, model_of, read_model
from loadtest.capacity.plan import plan
from loadtest.capacity.presets import preset
from loadtest.capacity.text import lines, record

FLEET_A = preset("fleet-a")

CONFIG = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}


def asked(**parts: Any) -> dict[str, float]:
    found = plan(msgspec.structs.replace(FLEET_A, **parts))
    return {figure.name: figure.value for group in groups(found) for figure in group.figures}


def test_twice_the_traffic_takes_twice_the_replicas_before_rounding() -> None:
    assert asked(rate_per_s=80.0)["busy"] == 2 * asked()["busy"]


def test_more_adapters_take_memory_and_no_replicas() -> None:
    assert asked(adapters=20_000)["replicas"] == asked()["replicas"]
    assert asked(adapters=20_000)["ram_bytes"] == pytest.approx(4 * asked()["ram_bytes"], rel=0.01)


def test_a_higher_rank_takes_slots() -> None:
    assert asked(rank=64)["adapter_bytes"] == 4 * asked()["adapter_bytes"]
    assert asked(rank=64)["slots"] == 88


def test_fewer_targets_make_smaller_adapters() -> None:
    assert asked(targets=("q_proj", "v_proj"))["layer_values"] == 2 * 131_072


def test_a_prompt_longer_than_a_chunk_takes_another_step() -> None:
    assert asked(chunk_tokens=512)["ttft_gpu_s"] == pytest.approx(asked()["ttft_gpu_s"] + 0.05)


def test_one_replica_holds_every_adapter_once() -> None:
    assert asked(rate_per_s=0.5)["owned"] == 5000


def test_an_exact_number_of_replicas_is_not_rounded_up_by_a_float() -> None:
    assert asked(rate_per_s=40.0, replica_tokens_per_s=1000.0, headroom=1.1)["replicas"] == 11


def test_a_small_model_with_tied_tables() -> None:
    """SmolLM2-135M: the parameter count that its makers give, and the 260 MB of its folder, in whole GB."""
    found = asked(model=model_of(CONFIG))
    assert found["base_bytes"] == 1e9
    worked = [figure.worked for group in groups(plan(msgspec.structs.replace(FLEET_A, model=model_of(CONFIG))))
              for figure in group.figures if figure.name == "base_bytes"]  # fmt: skip
    assert worked == ["⌈134,515,008 × 2 bytes⌉ GB"]


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"rate_per_s": 0.0}, "rate_per_s is 0 and has to be above 0."),
        ({"adapters": -1}, "adapters is -1 and has to be above 0."),
        ({"headroom": 0.9}, "headroom is 0.9; below 1 the fleet could not carry its own traffic."),
        ({"rate_per_s": float("nan")}, "rate_per_s is nan and has to be above 0."),
        ({"zipf": -0.1}, "zipf is -0.1 and cannot be below 0."),
        ({"rate_per_s": float("inf")}, "rate_per_s has to be a finite number."),
        ({"headroom": float("nan")}, "headroom has to be a finite number."),
        ({"replica_tokens_per_s": float("nan")}, "replica_tokens_per_s has to be above 0."),
        ({"replica_tokens_per_s": 0.0}, "replica_tokens_per_s has to be above 0."),
        ({"targets": ()}, "targets names no module, or one of them twice."),
        ({"targets": ("q_proj", "q_proj")}, "targets names no module, or one of them twice."),
        ({"gpu_bytes": 40e9}, "40 GB of GPU memory have no room for an adapter of 80 MB beside base 14 GB"),
    ],
)
def test_a_question_without_an_answer_says_why(parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NotPlannable) as caught:
        plan(msgspec.structs.replace(FLEET_A, **parts))
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": None}, "hidden_size is missing."),
        ({"vocab_size": "many"}, "vocab_size is 'many', not a size."),
        ({"num_hidden_layers": True}, "num_hidden_layers is True, not a size."),
        ({"torch_dtype": "int3"}, "torch_dtype int3 is none of"),
    ],
)
def test_a_config_that_does_not_say_enough(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIG, **change}))
    with pytest.raises(NotPlannable, match="does not say enough") as caught:
        read_model(tmp_path)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_file_that_is_no_config(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(NotPlannable, match=r"is no config\.json of a model"):
        read_model(tmp_path / "config.json")


def test_heads_share_keys_only_if_the_config_says_so() -> None:
    alone = model_of({key: value for key, value in CONFIG.items() if key != "num_key_value_heads"})
    assert alone.kv_heads == alone.heads == 9
    assert alone.head == 64


def test_figures_have_names_of_their_own() -> None:
    names = [figure.name for group in groups(plan(FLEET_A)) for figure in group.figures]
    assert len(set(names)) == len(names)


def test_a_formula_stands_beside_each_figure_if_asked_for() -> None:
    shown = groups(plan(FLEET_A))
    assert "= 1 ÷ 26" not in lines(shown, explain=False)
    explained = lines(shown, explain=True)
    assert "26   = ⌈19.4 × 1.3 headroom⌉" in explained
    assert "28.4 GB   = 80 GB − 14 GB − 33.6 GB − 4 GB" in explained


def test_a_script_gets_exact_values_and_the_question() -> None:
    found = msgspec.json.decode(msgspec.json.encode(record(plan(FLEET_A))))
    assert found["figures"]["adapter_bytes"] == {
        "value": 79_953_920,
        "unit": "bytes",
        "formula": "39,976,960 × 2 bytes",
    }
    assert found["question"]["adapters"] == 5000
    assert found["question"]["model"]["kv_heads"] == 32


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (79_953_920, "bytes", "80 MB"),
        (1.68e12, "bytes", "1.68 TB"),
        (0.0, "bytes", "0 B"),
        (0.008, "s", "8 ms"),
        (154.0, "s", "154 s"),
        (0.745, "share", "74.5 %"),
        (15.625, "replicas", "15.6 replicas"),
        (12_500, "USD/h", "12,500 USD/h"),
        (3, "", "3"),
    ],
)
def test_how_figures_read(value: float, unit: str, text: str) -> None:
    assert said(value, unit) == text
