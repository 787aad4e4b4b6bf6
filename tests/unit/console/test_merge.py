"""`lorafleet merge` as scripts see it: from a folder without a fleet, and of a registered adapter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from services.console.__main__ import main
from services.console.core.merging import terms_of_record
from services.console.core.outcome import BROKEN, OK, REFUSED, UNREACHABLE, USAGE
from services.replica_worker.engine.port import AdapterSpec
from shared.base_model import base_model_hash
from shared.store.port import weights_key
from tests.support.peft_files import peft_folder
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.scripted_http import Answer, Asked, answering
from tests.support.tiny_model import tiny_model_once


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that no fleet belongs to."""
    monkeypatch.chdir(tmp_path)


def written(base: Path, tmp_path: Path) -> tuple[Path, AdapterSpec]:
    return write_adapter(tmp_path, RandomAdapter(seed=3, use_rslora=True), base_model_hash(base))


@contextmanager
def registry_that_knows(record: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def answer(asked: Asked) -> Answer:
        return Answer(200, json.dumps(record).encode())

    with answering(answer) as address:
        for name, value in {"URL": address, "ADMIN_URL": address, "API_KEY": "k", "ADMIN_KEY": "a"}.items():
            monkeypatch.setenv(f"LORAFLEET_{name}", value)
        yield


def test_a_peft_folder_is_merged_without_a_fleet(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = peft_folder(tmp_path / "support", *written(base, tmp_path))
    assert main(["merge", str(folder), "--base", str(base), "--out", "merged", "--json"]) == OK
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "merged" / "merged.json").read_text())
    assert (told["adapter_id"], told["use_rslora"], len(told["scales"])) == ("support", True, 14)
    assert main(["merge", str(folder), "--base", str(base), "--out", "merged"]) == REFUSED
    assert "nothing is overwritten" in capsys.readouterr().err


def test_the_file_in_the_folder_means_the_folder(base: Path, tmp_path: Path) -> None:
    folder = peft_folder(tmp_path / "support", *written(base, tmp_path))
    argv = ["merge", str(folder / "adapter_model.safetensors"), "--base", str(base), "--out"]
    assert main([*argv, "one"]) == OK
    assert main(["merge", str(folder), "--base", str(base), "--out", "other"]) == OK
    one, other = (tmp_path / name / "model.safetensors" for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()


def test_a_registered_adapter_comes_from_the_registry_and_the_store(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, spec = written(base, tmp_path)
    store = tmp_path / "store"
    (store / weights_key(spec.digest)).parent.mkdir(parents=True)
    (store / weights_key(spec.digest)).write_bytes(path.read_bytes())
    record = {**msgspec.to_builtins(spec), "status": "active", "tenant_id": "acme"}
    with registry_that_knows(record, monkeypatch):
        monkeypatch.setenv("LORAFLEET_STORE_URL", store.as_uri())
        assert main(["merge", spec.adapter_id, "--base", str(base), "--out", "merged"]) == OK
        (store / weights_key(spec.digest)).write_bytes(b"rotten")
        capsys.readouterr()
        assert main(["merge", spec.adapter_id, "--base", str(base), "--out", "again"]) == REFUSED
        assert "rotten" not in (said := capsys.readouterr().err)
        assert spec.adapter_id in said or "safetensors" in said
        (store / weights_key(spec.digest)).unlink()
        assert main(["merge", spec.adapter_id, "--base", str(base), "--out", "again"]) == REFUSED
        assert "is not in the store" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_a_folder_with_expressions_is_merged_as_one_without(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = RandomAdapter(seed=3, targets=("q_proj", "v_proj"), alpha_pattern={"v_proj": 4.0})
    path, spec = write_adapter(tmp_path, adapter, base_model_hash(base))
    plain = peft_folder(tmp_path / "plain", path, spec)
    config = json.loads((plain / "adapter_config.json").read_text())
    expressions = {"target_modules": r".*\.[qv]_proj", "alpha_pattern": {"[v]_proj": 4.0}}
    for name, changes, code in (
        ("plain", {}, OK),
        ("expressions", expressions, OK),
        ("all-linear", {**expressions, "target_modules": "all-linear"}, OK),
        ("fewer", {**expressions, "target_modules": r".*\.q_proj"}, REFUSED),
        ("look-ahead", {**expressions, "target_modules": r".*\.(?=q|v)._proj"}, REFUSED),
    ):
        (plain / "adapter_config.json").write_text(json.dumps({**config, **changes}))
        assert main(["merge", str(plain), "--base", str(base), "--out", f"merged-{name}"]) == code, name
    merged = {
        name: (tmp_path / f"merged-{name}" / "model.safetensors").read_bytes() for name in ("plain", "expressions")
    }
    assert merged["plain"] == merged["expressions"]
    assert "model.layers.0.self_attn.v_proj is in the file but not among the target modules" in capsys.readouterr().err


def test_a_registered_adapter_is_merged_as_it_is_applied() -> None:
    announced = {"adapter_id": "a", "digest": "d", "base_model_hash": "b", "rank": 8, "alpha": 16.0}
    applied = {"target_modules": ["q_proj"], "rank_pattern": {}, "alpha_pattern": {"q_proj": 4.0}}
    said = {**announced, "target_modules": r".*\.q_proj", "alpha_pattern": {"q.*": 4.0}, "applied": applied}
    terms = terms_of_record(said)
    assert (terms.target_modules, terms.alpha_pattern) == (("q_proj",), {"q_proj": 4.0})
    assert terms_of_record({**said, "target_modules": ["q_proj"], "applied": None}).alpha_pattern == {"q.*": 4.0}


def test_what_keeps_a_registered_adapter_away_is_one_sentence(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"adapter_id": "acme-1", "digest": "d" * 64, "rank": 8, "alpha": 16.0, "target_modules": ["q_proj"]}
    cases = [
        ({**record, "digest": ""}, tmp_path.as_uri(), REFUSED, "no verified weights"),
        ({"adapter_id": "acme-1"}, tmp_path.as_uri(), BROKEN, "The registry does not describe acme-1"),
        (record, "s3://me:secret@bucket/x", USAGE, "LORAFLEET_STORE_URL does not fit"),
        (record, (tmp_path / "gone").as_uri(), UNREACHABLE, "acme-1 cannot be fetched"),
    ]
    for answer, url, code, sentence in cases:
        with registry_that_knows(answer, monkeypatch):
            monkeypatch.setenv("LORAFLEET_STORE_URL", url)
            assert main(["merge", "acme-1", "--base", str(base), "--out", "merged"]) == code
        said = capsys.readouterr().err
        assert sentence in said
        assert "secret" not in said
        assert said.count("\n") == 1
    assert not (tmp_path / "merged").exists()


NOT_PLAIN: dict[str, tuple[dict[str, object], str]] = {
    "of an altered base": ({"init_lora_weights": "pissa_niter_16"}, "changes the base"),
    "another method": ({"peft_type": "LOHA"}, "not LORA"),
    "switched on by tokens": ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens is set"),
}


@pytest.mark.parametrize(("config", "reason"), NOT_PLAIN.values(), ids=NOT_PLAIN.keys())
def test_an_adapter_that_is_no_plain_sum_is_refused_although_its_tensors_look_like_one(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, object], reason: str
) -> None:
    folder = peft_folder(tmp_path / "support", *written(base, tmp_path))
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    assert main(["merge", str(folder), "--base", str(base), "--out", "merged"]) == REFUSED
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "merged").exists()


def test_what_is_missing_is_named(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "acme-support", "--base", str(base), "--out", "merged"]) == UNREACHABLE
    assert "no file acme-support" in capsys.readouterr().err
    folder = peft_folder(tmp_path / "support", *written(base, tmp_path))
    assert main(["merge", str(folder), "--base", "nowhere", "--out", "merged"]) == USAGE
    (folder / "adapter_config.json").unlink()
    assert main(["merge", str(folder), "--base", str(base), "--out", "merged"]) == USAGE
    assert "adapter_config.json is missing" in capsys.readouterr().err
