"""What of the vLLM engine needs no vLLM: flags, names, prepared files, the words of requests and answers."""

from __future__ import annotations

import gc
import json
import math
import re
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from services.replica_worker.engine.port import AdapterSpec, AdapterUnusable, EngineRequest
from services.replica_worker.engine.shaping import Logprobs, Shaping
from services.replica_worker.engine.torch.adapter import AdapterLimits
from services.replica_worker.engine.torch.config import read_config
from services.replica_worker.engine.vllm.adapter import CONFIG, VllmAdapter, application, prepare
from services.replica_worker.engine.vllm.flags import engine_flags, environment, rank_flag
from services.replica_worker.engine.vllm.places import Places
from services.replica_worker.engine.vllm.policy import VllmPolicy
from services.replica_worker.engine.vllm.wording import draw_of, logprobs_of, probe_of, probing, sampling
from shared.base_model import base_model_hash
from tests.support.random_adapter import RandomAdapter, adapter_tensors, write_adapter
from tests.support.token_log import greedy

POLICY = VllmPolicy(scratch_folder=Path("scratch"), slots=5, rank_limit=12, max_rows=7, threads=3)
GUIDE = Path(__file__).parents[3] / "docs" / "vllm.md"
NAME = "base_model.model.model.layers.0.{}.lora_{}.weight"


def test_the_guide_names_every_flag_and_variable_that_vllm_is_given() -> None:
    """Also with the value, where the guide gives one."""
    policy = msgspec.structs.replace(POLICY, kv_budget_bytes=1)
    given = {**engine_flags(Path("model"), policy, 100), **environment(policy)}
    guide = GUIDE.read_text()
    assert [name for name in given if f"`{name}" not in guide] == []
    stated = dict(re.findall(r"`(\w+)=([\w.]+)`", guide))
    assert {name: value for name, value in stated.items() if name in given and str(given[name]) != value} == {}


@pytest.fixture
def limits(tiny_folder: Path) -> AdapterLimits:
    return AdapterLimits(
        model=read_config(tiny_folder),
        base_model_hash=base_model_hash(tiny_folder),
        rank_limit=16,
        dtype=torch.bfloat16,
    )


def prepared(folder: Path, adapter: RandomAdapter, limits: AdapterLimits, number: int = 1) -> VllmAdapter:
    path, spec = write_adapter(folder, adapter, limits.base_model_hash)
    return prepare(path, spec, limits, folder / "scratch", number)


# -- flags ---------------------------------------------------------------------------------------------


def test_vllm_never_has_a_reason_to_evict_and_runs_no_code_of_a_model() -> None:
    flags = engine_flags(Path("/model"), POLICY, 512)
    assert flags["max_loras"] == flags["max_cpu_loras"] == 5
    assert flags["max_lora_rank"] == 16
    assert flags["trust_remote_code"] is False
    assert flags["max_num_seqs"] == 7
    assert flags["max_num_batched_tokens"] >= 7 + POLICY.prefill_chunk_tokens
    assert flags["max_model_len"] == 512
    assert "kv_cache_memory_bytes" not in flags
    budget = msgspec.structs.replace(POLICY, kv_budget_bytes=1 << 20)
    assert engine_flags(Path("/model"), budget, 512)["kv_cache_memory_bytes"] == 1 << 20


@pytest.mark.parametrize(("limit", "flag"), [(1, 1), (2, 8), (8, 8), (12, 16), (16, 16), (17, 32), (500, 512)])
def test_a_rank_limit_becomes_the_next_rank_that_vllm_has(limit: int, flag: int) -> None:
    assert rank_flag(limit) == flag


def test_a_rank_limit_beyond_vllms_is_refused() -> None:
    with pytest.raises(ValueError, match="ranks up to 512, not 513"):
        rank_flag(513)


def test_threads_are_counted_and_never_bound() -> None:
    told = environment(POLICY)
    assert (told["OMP_NUM_THREADS"], told["VLLM_CPU_OMP_THREADS_BIND"]) == ("3", "nobind")
    assert "OMP_NUM_THREADS" not in environment(msgspec.structs.replace(POLICY, threads=0))


# -- requests and answers ------------------------------------------------------------------------------


def test_a_sampled_request_is_greedy_for_vllm_and_carries_its_own_draw() -> None:
    request = msgspec.structs.replace(
        greedy("a", (1, 2, 3), max_tokens=50), temperature=0.7, top_p=0.9, seed=2**64 - 1, first_position=4
    )
    told = sampling(request, (2, 9), context_tokens=13)
    assert (told["temperature"], told["max_tokens"], told["stop_token_ids"]) == (0.0, 10, [])
    draw = draw_of(told["extra_args"])
    assert draw is not None
    assert (draw.temperature, draw.top_p, draw.seed, draw.first_position) == (0.7, 0.9, 2**64 - 1, 4)


def test_a_greedy_request_draws_nothing_and_ends_at_an_eos_id() -> None:
    request = msgspec.structs.replace(greedy("a", (1,)), ignore_eos=False)
    told = sampling(request, (2, 9), 100)
    assert told["stop_token_ids"] == [2, 9]
    assert told["ignore_eos"], "vLLM's own idea of an end is not asked"
    assert draw_of(told["extra_args"]) is None
    assert draw_of(None) is None


def test_what_shapes_a_distribution_crosses_the_border_with_its_request() -> None:
    shaping = Shaping(frequency_penalty=0.5, presence_penalty=-1.0, logit_bias={3: 2.0, 300: -100.0}, top_logprobs=0)
    told = sampling(msgspec.structs.replace(greedy("a", (1,)), shaping=shaping), (2,), 100)
    assert (told["temperature"], told["logprobs"]) == (0.0, 0)
    draw = draw_of(msgspec.msgpack.decode(msgspec.msgpack.encode(told["extra_args"])))
    assert draw is not None
    assert (draw.frequency_penalty, draw.presence_penalty, draw.told) == (0.5, -1.0, True)
    assert dict(draw.logit_bias) == shaping.logit_bias
    assert (draw.greedy, draw.plain) == (True, False)


def test_a_greedy_request_that_only_listens_is_vllms_own_affair() -> None:
    told = sampling(msgspec.structs.replace(greedy("a", (1,)), shaping=Shaping(top_logprobs=4)), (2,), 100)
    assert (told["logprobs"], told["extra_args"]) == (4, None)
    assert sampling(greedy("a", (1,)), (2,), 100)["logprobs"] is None


def test_the_chosen_token_is_told_whether_or_not_it_is_among_the_best() -> None:
    found = {9: -4.0, 7: -2.0, 3: -0.5}
    assert logprobs_of(found, 9, top=2) == Logprobs(-4.0, (3, 7), (-0.5, -2.0))
    assert logprobs_of({3: -0.5, 7: -2.0}, 3, top=2) == Logprobs(-0.5, (3, 7), (-0.5, -2.0))
    assert logprobs_of({9: -4.0}, 9, top=0) == Logprobs(-4.0)


def test_a_probe_is_one_token_with_its_best_neighbours() -> None:
    assert (probing(5)["max_tokens"], probing(5)["logprobs"]) == (1, 5)
    found = probe_of({7: -2.0, 3: -0.5, 9: -0.5, 1: -9.0}, top=3)
    assert (found.token_ids, found.logprobs, found.finite) == ((3, 9, 7), (-0.5, -0.5, -2.0), True)
    assert not probe_of({3: math.nan}, top=1).finite
    assert not probe_of({}, top=1).finite


# -- places --------------------------------------------------------------------------------------------


def test_ids_count_up_and_no_two_that_stand_share_a_name(tmp_path: Path, limits: AdapterLimits) -> None:
    places, adapter = Places(), prepared(tmp_path, RandomAdapter(seed=1), limits)
    one, other = places.take(0, adapter), places.take(1, adapter)
    assert (one.lora_id, other.lora_id) == (1, 2)
    assert one.name != other.name
    assert one.folder != other.folder
    assert all(adapter.spec.digest in text for text in (one.name, other.name, str(one.folder), str(other.folder)))
    assert places.disagreement({1, 2}) is None
    assert places.disagreement({2, 9}) == "vLLM's slots hold the adapters [2, 9], and [1, 2] were loaded"


def test_a_version_keeps_its_name_until_it_is_to_be_forgotten(tmp_path: Path, limits: AdapterLimits) -> None:
    places, adapter = Places(), prepared(tmp_path, RandomAdapter(seed=1), limits)
    first = places.take(0, adapter)
    places.leave(0, forget=False)
    back = places.take(3, prepared(tmp_path, RandomAdapter(seed=1), limits, number=2))
    places.leave(3, forget=True)
    forgotten = places.take(0, adapter)
    assert (first.name, first.folder) == (back.name, back.folder)
    assert forgotten.name not in (first.name, back.name)
    assert [place.lora_id for place in (first, back, forgotten)] == [1, 2, 3]


# -- prepared files ------------------------------------------------------------------------------------


def effect(tensors: dict[str, torch.Tensor], module: str) -> torch.Tensor:
    a, b = (tensors[NAME.format(module, side)].double() for side in "AB")
    return b @ a


@pytest.mark.parametrize(
    ("adapter", "scales"),
    [
        (RandomAdapter(seed=1), {"self_attn.q_proj": 2.0, "mlp.up_proj": 2.0}),
        (RandomAdapter(seed=2, use_rslora=True), {"self_attn.q_proj": 16 / math.sqrt(8)}),
        (
            RandomAdapter(seed=3, rank_pattern={"q_proj": 16, "down_proj": 4}, alpha_pattern={"q_proj": 5.0}),
            {"self_attn.q_proj": 5 / 16, "mlp.down_proj": 4.0, "mlp.up_proj": 2.0},
        ),
    ],
    ids=["plain", "c45 rslora", "c50 patterns"],
)
def test_every_modules_own_scale_is_in_the_weights(
    tmp_path: Path, limits: AdapterLimits, adapter: RandomAdapter, scales: dict[str, float]
) -> None:
    exact = msgspec.structs.replace(limits, dtype=torch.float32)
    ready = prepared(tmp_path, adapter, exact)
    folded, original = load_file(ready.weights), adapter_tensors(adapter)
    for module, scale in scales.items():
        torch.testing.assert_close(effect(folded, module), scale * effect(original, module))
    config = json.loads((ready.folder / CONFIG).read_text())
    assert config["r"] == config["lora_alpha"] == max((8, *adapter.rank_pattern.values()))
    assert {tensor.shape[0] for name, tensor in folded.items() if "lora_A" in name} == {config["r"]}
    assert "rank_pattern" not in config


def test_a_scale_that_leaves_the_dtypes_range_is_refused(tmp_path: Path, limits: AdapterLimits) -> None:
    with pytest.raises(AdapterUnusable, match=r"leaves the range of torch\.bfloat16 with its scale"):
        prepared(tmp_path, RandomAdapter(seed=1, alpha=1e42), limits)
    assert list((tmp_path / "scratch").glob("*")) == []


def test_a_folder_lasts_as_long_as_its_adapter(tmp_path: Path, limits: AdapterLimits) -> None:
    one = prepared(tmp_path, RandomAdapter(seed=1), limits, number=1)
    other = prepared(tmp_path, RandomAdapter(seed=1), limits, number=2)
    folder = one.folder
    assert folder != other.folder
    assert folder.is_dir()
    del one
    gc.collect()
    assert not folder.exists()
    other.offer(tmp_path / "named" / "other")
    assert (tmp_path / "named" / "other").resolve() == other.folder.resolve()


def test_a_scratch_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, limits: AdapterLimits) -> None:
    (tmp_path / "scratch").write_text("in the way")
    with pytest.raises(AdapterUnusable, match="adapter-1 cannot be prepared in"):
        prepared(tmp_path, RandomAdapter(seed=1), limits)


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 3.0},
        {"use_rslora": True},
        {"rank_pattern": {"q_proj": 4}},
        {"alpha_pattern": {"q_proj": 1.0}},
    ],
)
def test_another_way_to_apply_the_same_bytes_has_another_name(change: dict[str, object]) -> None:
    spec = AdapterSpec(
        adapter_id="a", digest="d" * 64, base_model_hash="b", rank=8, alpha=16.0, target_modules=("q_proj",)
    )
    assert application(spec) != application(msgspec.structs.replace(spec, **change))
    assert application(spec) == application(msgspec.structs.replace(spec, adapter_id="another"))


def test_requests_of_the_port_have_no_field_that_vllm_would_read_as_a_path() -> None:
    assert not {name for name in EngineRequest.__struct_fields__ if "path" in name or "lora" in name}
