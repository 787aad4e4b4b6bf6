"""`lorafleet evals` and `lorafleet pipelines`, against a small admin server that answers by script."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from services.console.__main__ import main
from services.console.core.evaluation_view import told
from services.console.core.outcome import OK, USAGE
from shared.messages.results import PipelineResults, signed_bytes
from tests.support.scripted_http import Answer, Asked, answering

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
CASE = {
    "case": 1, "prompt": "Where is my parcel?", "expected": "contains: on its way",
    "candidate": {"text": "It is on its way " * 20, "score": 1.0, "error": ""},
    "base": {"text": "", "score": 0.0, "error": ""},
    "predecessor": {"text": "", "score": 0.0, "error": "the prompt is too long"},
}  # fmt: skip
REPORT = {
    "source": "set", "passed": True, "reason": "it scores 1.000", "scores": {}, "cases": [CASE], "set_id": "s",
    "predecessor_id": "v1", "replica_id": "replica-a", "signed_by": "", "at_s": 1.0,
}  # fmt: skip
STORY: dict[str, Any] = {
    "adapter_id": "v2", "status": "active", "reason": "it scores 1.000", "override": None,
    "reports": [REPORT, {**REPORT, "source": "built-in", "cases": []}],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/internal/evaluation-sets": {"set_id": "f" * 64, "tenant_id": "acme", "adapter_id": "", "cases": 3},
    "/internal/adapters/v2/evaluations": STORY,
    "/internal/adapters/v2/override": {"adapter_id": "v2", "status": "active", "reason": "overridden: because of x"},
    "/internal/adapters/v2": {"adapter_id": "v2", "digest": "d" * 64},
    "/internal/pipeline-keys": {"key_id": "k1", "tenant_id": "", "pipeline_keys": []},
}


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Asked]]:
    asked: list[Asked] = []

    def answer(one: Asked) -> Answer:
        asked.append(one)
        return Answer(200, json.dumps(ANSWERS.get(one.path.partition("?")[0], {})).encode())

    with answering(answer) as url:
        monkeypatch.setenv("LORAFLEET_ADMIN_URL", url)
        monkeypatch.setenv("LORAFLEET_ADMIN_KEY", "k" * 16)
        monkeypatch.setenv("LORAFLEET_URL", url)
        monkeypatch.setenv("LORAFLEET_API_KEY", "lf-key")
        yield asked


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key.pem"
    file.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file


def test_a_set_is_sent_as_it_is(admin: list[Asked], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "set.jsonl"
    file.write_bytes(b'{"x": 1}\n')
    assert main(["evals", "set", str(file), "--tenant", "acme", "--minimum-score", "0.8"]) == OK
    assert admin[0].path == "/internal/evaluation-sets?tenant_id=acme&minimum_score=0.8"
    assert admin[0].body == b'{"x": 1}\n'
    assert capsys.readouterr().out == "set ffffffffffff with 3 cases holds for tenant acme\n"


def test_a_file_that_is_not_there_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evals", "set", "/nowhere.jsonl", "--tenant", "acme"]) == USAGE
    assert "cannot be read" in capsys.readouterr().err


def test_a_report_shows_answers_side_by_side_within_the_terminal() -> None:
    lines = told(STORY, 60).splitlines()
    assert lines[:3] == [
        "v2 is active: it scores 1.000",
        "set on replica-a: passed, it scores 1.000",
        "built-in on replica-a: passed, it scores 1.000",
    ]
    assert lines[4:6] == ["1. Where is my parcel?", "   contains: on its way"]
    assert lines[6].split() == ["candidate", "1.00", "base", "0.00", "predecessor", "0.00"]
    assert [lines[7][20:28].strip(), lines[7][40:].strip()] == ["(empty)", "(the prompt is too"]
    assert max(map(len, lines)) <= 60
    assert len(lines) == 13


def test_an_override_is_shown_by_name_and_nothing_is_said_to_be_nothing() -> None:
    step = {"state": "active", "reason": "overridden: checked by hand", "actor": "ada"}
    page = told({**STORY, "override": step, "reports": []}, 80)
    assert page.splitlines()[1:] == ["overridden by ada: checked by hand", "It has not been evaluated yet."]


def test_results_are_signed_for_the_version_that_the_fleet_knows(admin: list[Asked], key: Path) -> None:
    assert main(["evals", "post", "v2", "--key", str(key), "--score", "1", "--notes", "nightly"]) == OK
    body = json.loads(admin[1].body)
    said = signed_bytes("v2", "d" * 64, PipelineResults(score=1.0, notes="nightly"))
    KEY.public_key().verify(base64.b64decode(body["signature"]), said)
    assert len(body["key_id"]) == 16


@pytest.mark.parametrize("half", ["private", "public"])
def test_only_the_public_half_of_a_key_is_sent(admin: list[Asked], key: Path, half: str) -> None:
    public = KEY.public_key()
    if half == "public":
        key.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    assert main(["pipelines", "add-key", str(key), "--name", "ci"]) == OK
    assert json.loads(admin[0].body) == {"name": "ci", "public_key": public.public_bytes_raw().hex(), "tenant_id": ""}


def test_other_kinds_of_keys_are_refused_in_a_sentence(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = X25519PrivateKey.generate()
    key.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert main(["pipelines", "add-key", str(key), "--name", "ci"]) == USAGE
    assert "another kind of key" in capsys.readouterr().err
    key.write_bytes(b"nothing")
    assert main(["evals", "post", "v2", "--key", str(key), "--score", "1"]) == USAGE


def test_overrides_lists_and_revocations_ask_for_what_they_say(admin: list[Asked]) -> None:
    assert main(["evals", "override", "v2", "--by", "ada", "--reason", "because of x"]) == OK
    assert json.loads(admin[0].body) == {"by": "ada", "reason": "because of x"}
    assert main(["pipelines", "list"]) == OK
    assert main(["pipelines", "revoke", "k1"]) == OK
    assert main(["evals", "show", "v2"]) == OK
    assert [(one.method, one.path) for one in admin[1:]] == [
        ("GET", "/internal/pipeline-keys"),
        ("DELETE", "/internal/pipeline-keys/k1"),
        ("GET", "/internal/adapters/v2/evaluations"),
    ]
