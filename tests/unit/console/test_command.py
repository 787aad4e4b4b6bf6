"""The command as scripts see it: exit codes and output, against a small admin server that answers by script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.console.__main__ import main
from services.console.core.outcome import BROKEN, INTERRUPTED, OK, REFUSED, UNREACHABLE, USAGE
from tests.support.scripted_http import Answer, Asked, answering

ANSWERS: dict[tuple[str, str], tuple[int, Any]] = {
    ("GET", "/internal/aliases"): (200, {"aliases": [{"alias": "acme/a:prod", "adapter_id": "a1"}]}),
    ("PUT", "/internal/aliases/acme/a:prod"): (409, {"error": {"message": "a1 is not active.", "code": "conflict"}}),
    ("GET", "/internal/keys"): (503, {"error": {"message": "The database is away.", "code": "unavailable"}}),
    ("GET", "/internal/base-models"): (200, {"base_models": [{"base_model_hash": "b" * 64}]}),
    ("POST", "/internal/adapters"): (
        422,
        {"error": {"message": "2 defects.", "defects": [
            {"code": "rank_too_large", "message": "rank 64 over 16."}, {"code": "bias", "message": "bias is set."},
        ]}},
    ),
}  # fmt: skip


def answer(asked: Asked) -> Answer:
    uri = {"weights_uri": "upload:" + asked.path.rpartition("/")[2]}
    default = (200, uri) if "/uploads/" in asked.path else (404, {"error": {"message": "no such thing"}})
    status, body = ANSWERS.get((asked.method, asked.path), default)
    return Answer(status, json.dumps(body).encode())


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with answering(answer) as address:
        for name, value in {"URL": address, "ADMIN_URL": address, "API_KEY": "k", "ADMIN_KEY": "a"}.items():
            monkeypatch.setenv(f"LORAFLEET_{name}", value)
        yield


def test_a_listing_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alias", "list"]) == OK
    assert capsys.readouterr().out.startswith("ALIAS")
    assert main(["alias", "list", "--json"]) == OK
    assert json.loads(capsys.readouterr().out) == [{"alias": "acme/a:prod", "adapter_id": "a1"}]


def test_a_refusal_is_the_fleets_sentence_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alias", "set", "acme/a:prod", "a1"]) == REFUSED
    assert capsys.readouterr().err == "a1 is not active.\n"


def test_a_broken_fleet_is_exit_code_4() -> None:
    assert main(["keys", "list"]) == BROKEN


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "127.0.0.1", "http://[nowhere"])
def test_nobody_there_is_exit_code_3(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LORAFLEET_ADMIN_URL", address)
    assert main(["keys", "list"]) == UNREACHABLE
    assert "is the fleet up?" in capsys.readouterr().err


def test_every_defect_of_a_registration_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"r": 64, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    assert main(["adapters", "register", str(tmp_path), "--tenant", "acme"]) == REFUSED
    assert capsys.readouterr().err.splitlines() == [
        "It was refused for several reasons:", "  rank_too_large: rank 64 over 16.", "  bias: bias is set.",
    ]  # fmt: skip


def test_a_folder_that_is_none_of_pefts_names_the_missing_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["adapters", "register", str(tmp_path), "--tenant", "acme"]) == 2
    assert "adapter_config.json is missing" in capsys.readouterr().err


def test_a_config_that_makes_no_sense_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "adapter_config.json").write_text('{"r": "eight"}')
    (tmp_path / "adapter_model.safetensors").touch()
    assert main(["adapters", "register", str(tmp_path), "--tenant", "acme"]) == USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(admin: object, path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("services.console.io.admin.Admin.get", interrupted)
    assert main(["keys", "list"]) == INTERRUPTED


def test_a_reader_that_has_enough_is_no_failure() -> None:
    command = [sys.executable, "-m", "services.console", "alias", "list"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (OK, "")


@pytest.mark.parametrize("words", [["up", "--json"], ["down", "--json"], ["chat", "a", "b", "--json"]])
def test_json_is_offered_only_where_there_is_some(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "--json" in capsys.readouterr().err
