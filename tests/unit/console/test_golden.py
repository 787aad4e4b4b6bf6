"""`lorafleet bases golden` as scripts see it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from services.console.__main__ import main
from services.console.core.outcome import OK, REFUSED
from services.replica_worker.io.golden import read_golden
from shared.base_model import base_model_hash
from tests.support.tiny_model import tiny_model_once


def test_the_answer_of_a_folder_is_recorded_without_a_fleet(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copytree(tiny_model_once(tmp_path_factory), tmp_path / "model"))
    assert main(["bases", "golden", str(model), "--json"]) == OK
    found = read_golden(model)
    assert found is not None
    assert found.base_model_hash == base_model_hash(model)
    assert json.loads(capsys.readouterr().out) == {"path": str(model / "golden.json")}


def test_what_is_no_model_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bases", "golden", str(tmp_path)]) == REFUSED
    assert "no base model folder" in capsys.readouterr().err
    for name, content in (("config.json", "{}"), ("tokenizer.json", "{}"), ("model.safetensors", "")):
        (tmp_path / name).write_text(content)
    assert main(["bases", "golden", str(tmp_path)]) == REFUSED
    assert capsys.readouterr().err.count("\n") == 1
