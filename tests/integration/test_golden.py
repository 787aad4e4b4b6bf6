"""The base model's golden answer: recorded once, given by every replica before it takes a request."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from safetensors.torch import load_file, save_file

from services.replica_worker.core.golden import FILE_NAME, Golden, tolerance
from services.replica_worker.engine.port import EngineFailed
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from services.replica_worker.io.golden import read_golden, write_golden
from services.replica_worker.record_golden import main, record
from services.replica_worker.settings import Settings
from shared.base_model import base_model_hash
from shared.contracts.catalog import REPLICA_REPORT
from shared.messages.reports import ReplicaReport
from tests.support.replica import Rig, rig, timed
from tests.support.tiny_model import build_tiny_model, tiny_model_once

Dtype = Literal["float32", "bfloat16"]


@pytest.fixture
def model(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(tiny_model_once(tmp_path_factory), tmp_path / "model"))


def golden_of(model: Path) -> Golden:
    found = read_golden(model)
    assert found is not None
    return found


def policy(dtype: Dtype) -> TorchPolicy:
    return TorchPolicy(slots=4, max_rows=8, max_context_tokens=256, dtype=dtype, threads=1)


def spoil(model: Path, layer: str, factor: float) -> None:
    """The weights change and the recorded answer does not, as if the engine had loaded something else."""
    tensors = load_file(model / "model.safetensors")
    tensors[layer] = (tensors[layer].float() * factor).to(tensors[layer].dtype)
    before = golden_of(model)
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    write_golden(model, msgspec.structs.replace(before, base_model_hash=base_model_hash(model)))


async def standing_of(tmp_path: Path, model: Path, dtype: Dtype = "float32") -> ReplicaReport:
    """What a replica that was started on this model says of itself; raises what its start raised."""
    settings: dict[str, Any] = {"ram_budget_bytes": 1 << 20, "max_context_tokens": 256}
    base = base_model_hash(model)
    async with rig(tmp_path, model, engine=TorchEngine(model, policy(dtype)), base_hash=base, **settings) as replica:
        return replica.replica.reporter.report()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_c10_the_model_that_was_recorded_is_right_in_either_dtype(
    tmp_path: Path, model: Path, dtype: Dtype
) -> None:
    report = await standing_of(tmp_path, model, dtype)
    assert (report.ready, report.golden) == (True, "right")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("layer", "factor"),
    [
        ("model.layers.1.mlp.down_proj.weight", 8.0),
        ("model.layers.0.self_attn.o_proj.weight", -8.0),
        ("lm_head.weight", 1.1),
    ],
)
async def test_c10_one_layer_that_is_not_what_was_recorded_and_the_replica_is_never_ready(
    tmp_path: Path, model: Path, layer: str, factor: float, dtype: Dtype
) -> None:
    spoil(model, layer, factor)
    reports: list[ReplicaReport] = []
    with pytest.raises(EngineFailed, match="answer to the golden prompt is not the recorded one: a log-probability"):
        await reports_of_a_start(tmp_path, model, dtype, reports)
    assert not any(report.ready for report in reports)
    assert "golden prompt" in reports[-1].reason


async def test_c10_another_models_answer_and_the_replica_is_never_ready(tmp_path: Path, model: Path) -> None:
    other = build_tiny_model(tmp_path / "other", seed=1)
    shutil.copy(other / FILE_NAME, model / FILE_NAME)
    with pytest.raises(EngineFailed, match=r"golden.json was recorded for base model \w{12}, this one is \w{12}"):
        await standing_of(tmp_path, model)


async def test_a_file_that_is_no_recorded_answer_is_not_taken_for_none(tmp_path: Path, model: Path) -> None:
    (model / FILE_NAME).write_text("{}")
    with pytest.raises(EngineFailed, match=r"golden.json is no recorded answer: .*base_model_hash"):
        await standing_of(tmp_path, model)


async def test_a_model_without_a_recorded_answer_is_served_and_says_so(tmp_path: Path, model: Path) -> None:
    (model / FILE_NAME).unlink()
    report = await standing_of(tmp_path, model)
    assert (report.ready, report.golden) == (True, "unchecked")


async def test_an_engine_without_a_model_has_nothing_to_check(tmp_path: Path, model: Path) -> None:
    async with rig(tmp_path, model, engine=timed()) as replica:
        assert replica.replica.reporter.report().golden == "unchecked"


async def test_the_answer_is_no_part_of_the_models_identity_and_carries_it(model: Path) -> None:
    with_it = base_model_hash(model)
    golden = golden_of(model)
    (model / FILE_NAME).unlink()
    assert base_model_hash(model) == with_it == golden.base_model_hash
    assert golden.computed_by.startswith("torch-")
    assert golden.computed_by.endswith("/float32")
    assert len(golden.token_ids) == 20
    assert list(golden.logprobs) == sorted(golden.logprobs, reverse=True)
    assert tolerance(golden, "bfloat16") == pytest.approx(0.02 + 2 * golden.rounding)


async def test_recording_again_writes_the_same(model: Path) -> None:
    before = (model / FILE_NAME).read_bytes()
    assert await record(model) == model / FILE_NAME
    assert (model / FILE_NAME).read_bytes() == before


def test_a_folder_that_holds_no_model_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert "tokenizer.json" in said.err


async def reports_of_a_start(tmp_path: Path, model: Path, dtype: Dtype, reports: list[ReplicaReport]) -> None:
    """Start a replica; what it says of itself until its start fails is in `reports`."""
    settings = Settings(
        replica_id="replica-1", model_folder=model, store_url="file:///unused", cache_folder=tmp_path / "cache",
        slots=4, max_context_tokens=256,
    )  # fmt: skip
    replica = Rig(tmp_path, model, settings, TorchEngine(model, policy(dtype)), base_model_hash(model))

    async def on_report(report: ReplicaReport, ids: tuple[str, ...]) -> None:
        reports.append(report)

    subscription = await replica.caller.bus.subscribe(REPLICA_REPORT, on_report)
    try:
        await replica.start()
    finally:
        await replica.residency.stop()
        await replica.until(lambda: bool(reports))
        await subscription.close()
