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
from shared.messages.pools import pool_id
from tests.support.scripted_http import Answer, Asked, answering

ANSWERS: dict[tuple[str, str], tuple[int, Any]] = {
    ("GET", "/internal/aliases"): (200, {"aliases": [{"alias": "acme/a:prod", "adapter_id": "a1"}]}),
    ("PUT", "/internal/aliases/acme/a:prod"): (409, {"error": {"message": "a1 is not active.", "code": "conflict"}}),
    ("GET", "/internal/keys"): (503, {"error": {"message": "The database is away.", "code": "unavailable"}}),
    ("GET", "/internal/base-models"): (200, {"base_models": [{"base_model_hash": "b" * 64, "name": "tiny"}]}),
    ("GET", "/internal/adapters?status=failed"): (200, {"adapters": [{"adapter_id": "a9", "status": "failed"}]}),
    ("PATCH", "/internal/adapters/a1"): (200, {"adapter_id": "a1", "pinned": True}),
    ("GET", "/internal/adapters/a1"): (200, {"adapter_id": "a1", "status": "evaluating"}),
    ("PUT", "/internal/aliases/acme/new"): (200, {"adapter_id": "a1", "previous_adapter_id": None}),
    ("PUT", "/internal/aliases/acme/old"): (200, {"adapter_id": "a2", "previous_adapter_id": "a1"}),
    ("POST", "/internal/keys"): (201, {"api_key": "lf-secret", "key_id": "k1"}),
    ("POST", "/internal/tenants"): (201, {"tenant_id": "acme", "weight": 1.0}),
    ("POST", "/internal/adapters"): (
        422,
        {"error": {"message": "2 defects.", "defects": [
            {"code": "rank_too_large", "message": "rank 64 over 16."}, {"code": "bias", "message": "bias is set."},
        ]}},
    ),
}  # fmt: skip


def answer(asked: Asked) -> Answer:
    uri = {"offset_bytes": 0, "weights_uri": "upload:" + asked.path.rpartition("/")[2]}
    default = (200, uri) if "/uploads/" in asked.path else (404, {"error": {"message": "no such thing"}})
    status, body = ANSWERS.get((asked.method, asked.path), default)
    return Answer(status, json.dumps(body).encode())


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Asked]]:
    """What the server was asked."""
    asked: list[Asked] = []

    def note(request: Asked) -> Answer:
        asked.append(request)
        return answer(request)

    with answering(note) as address:
        for name, value in {"URL": address, "ADMIN_URL": address, "API_KEY": "k", "ADMIN_KEY": "a"}.items():
            monkeypatch.setenv(f"LORAFLEET_{name}", value)
        yield asked


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


def test_an_adapter_is_pinned_and_unpinned(admin: list[Asked], capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(["adapters", word, "a1"]) for word in ("pin", "unpin")] == [OK, OK]
    assert [json.loads(asked.body) for asked in admin] == [{"pinned": True}, {"pinned": False}]
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["a1 is pinned", "a1 is not pinned"]


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "127.0.0.1", "http://[nowhere"])
def test_nobody_there_is_exit_code_3(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LORAFLEET_ADMIN_URL", address)
    assert main(["keys", "list"]) == UNREACHABLE
    assert "is the fleet up?" in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = {"r": 64, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_every_defect_of_a_registration_has_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adapters", "register", str(folder), "--tenant", "acme"]) == REFUSED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "It was refused for several reasons:", "  rank_too_large: rank 64 over 16.", "  bias: bias is set.",
    ]  # fmt: skip


def test_a_script_reads_why_a_registration_was_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adapters", "register", str(folder), "--tenant", "acme", "--json"]) == REFUSED
    assert json.loads(capsys.readouterr().out) == ANSWERS["POST", "/internal/adapters"][1]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_adapter_that_takes_too_long_is_told_with_the_time_that_was_given(
    more: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(ANSWERS, ("POST", "/internal/adapters"), (201, {"adapter_id": "a1", "status": "verified"}))
    words = ["adapters", "register", str(folder), "--tenant", "acme", "--id", "a1", "--wait", "--timeout", "0.1"]
    assert main([*words, *more]) == REFUSED
    said = capsys.readouterr()
    assert said.err == "a1 is still evaluating after 0.1 s.\n"
    assert (json.loads(said.out)["status"] if more else said.out) == ("evaluating" if more else "")


def test_one_folder_is_registered_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adapters", "register", "a", "b", "c", "--tenant", "acme"]) == USAGE
    assert capsys.readouterr().err == "3 folders were given: register one, or all with register-all.\n"


def test_a_file_is_no_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "adapter_model.safetensors"
    assert main(["adapters", "register", str(file), "--tenant", "acme"]) == USAGE
    assert capsys.readouterr().err == f"{file} is a file: give the folder around it.\n"


def test_of_several_base_models_the_one_that_is_served_is_meant(
    folder: Path, admin: list[Asked], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bases = [{"base_model_hash": digit * 64, "name": f"model-{digit}"} for digit in "bc"]
    monkeypatch.setitem(ANSWERS, ("GET", "/internal/base-models"), (200, {"base_models": bases}))
    replicas = [{"ready": True, "pool_id": pool_id("c" * 64, 16)}, {"ready": False, "pool_id": pool_id("b" * 64, 16)}]
    monkeypatch.setitem(ANSWERS, ("GET", "/internal/fleet"), (200, {"replicas": replicas}))
    main(["adapters", "register", str(folder), "--tenant", "acme"])
    assert json.loads(admin[-1].body)["base_model_hash"] == "c" * 64
    monkeypatch.setitem(ANSWERS, ("GET", "/internal/fleet"), (200, {"replicas": []}))
    assert main(["adapters", "register", str(folder), "--tenant", "acme"]) == USAGE
    said = capsys.readouterr().err
    assert all(f"{base['base_model_hash']}  {base['name']}" in said for base in bases)


def test_a_replicas_kv_cache_and_warmth_are_shown_as_far_as_they_are_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, counts = pool_id("b" * 64, 16), dict.fromkeys(("running", "queue_depth", "slots", "gpu", "ram", "disk"), 0)
    plain = {"pool_id": pool, "ready": True, "draining": False, "reason": "", "adapters": [], **counts}
    told = {**plain, "replica_id": "r1", "kv_used_tokens": 320, "kv_total_tokens": 1_280}
    replicas = [told, {**plain, "replica_id": "r2", "warming": True, "to_warm": 3}]
    monkeypatch.setitem(ANSWERS, ("GET", "/internal/fleet"), (200, {"replicas": replicas}))
    assert main(["status"]) == OK
    head, first, second = capsys.readouterr().out.splitlines()[:3]
    at = head.index("KV")
    assert (first[at:].split("  ")[0], second[at:].split("  ")[0]) == ("25 %", "-")
    assert ("warming" in first, "warming, 3 to come" in second) == (False, True)


def test_base_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bases", "list"]) == OK
    assert f"tiny  {'b' * 64}" in capsys.readouterr().out


def test_adapters_are_listed_by_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adapters", "list", "--status", "failed"]) == OK
    assert "a9" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["adapters", "list", "--status", "lost"])


def test_a_new_key_stands_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", "--tenant", "acme"]) == OK
    said = capsys.readouterr()
    assert said.out == "lf-secret\n"
    assert "key id k1" in said.err


def test_a_tenant_is_created_or_there_already(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tenants", "create", "acme"]) == OK
    assert capsys.readouterr().out == "tenant acme is created\n"
    monkeypatch.setitem(ANSWERS, ("POST", "/internal/tenants"), (200, {"tenant_id": "acme", "weight": 1.0}))
    assert main(["tenants", "create", "acme"]) == OK
    assert capsys.readouterr().out == "tenant acme exists already; its weight is 1.0\n"


def test_an_alias_says_what_it_meant_before(capsys: pytest.CaptureFixture[str]) -> None:
    for alias in ("acme/new", "acme/old"):
        assert main(["alias", "set", alias, "a1"]) == OK
    assert capsys.readouterr().out.splitlines() == [
        "acme/new -> a1 (a new alias: it has meant nothing else)", "acme/old -> a2 (before: a1)",
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
