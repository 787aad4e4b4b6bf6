"""`lorafleet probe` as its operator sees it, against a fleet that answers by script."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from infra.local.temporary import free_ports
from services.console.__main__ import main
from services.console.commands import probe as probe_module
from services.console.core.outcome import BROKEN, INTERRUPTED, OK, REFUSED, USAGE
from services.console.core.probing import TENANT, canary_for
from tests.support.scripted_http import Answer, Asked, answering
from tests.support.waiting import eventually

BASE_HASH = "b" * 64
CANARY = canary_for("ZK49", "0123456789abcdef")


class Fleet:
    """One address for both doors. `says` is the canary's answer, None: it is refused."""

    def __init__(self) -> None:
        self.says: str | None = "ZK49"
        self.adapters: list[dict[str, Any]] = [{"adapter_id": CANARY.adapter_id, "base_model_hash": BASE_HASH}]
        self.asked: list[Asked] = []

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if asked.path == "/v1/chat/completions":
            return self._chat(json.loads(asked.body)["model"])
        answers: dict[tuple[str, str], Any] = {
            ("POST", "/internal/tenants"): {"tenant_id": TENANT},
            ("GET", "/internal/base-models"): {"base_models": [{"base_model_hash": BASE_HASH, "name": "tiny"}]},
            ("GET", f"/internal/adapters?tenant_id={TENANT}&status=active"): {"adapters": self.adapters},
            ("POST", "/internal/keys"): {"api_key": "lf-probe", "key_id": "k7"},
            ("DELETE", "/internal/keys/k7"): {},
            ("GET", "/v1/models"): {"data": [{"id": "tiny"}, {"id": CANARY.alias}]},
        }
        return Answer(200, json.dumps(answers[asked.method, asked.path]).encode())

    def _chat(self, model: str) -> Answer:
        if model != CANARY.alias:
            return _stream("Hello", "base")
        if self.says is None:
            return Answer(503, json.dumps({"error": {"message": "Nobody is free."}}).encode())
        return _stream(self.says, CANARY.adapter_id)


def _stream(text: str, adapter_id: str) -> Answer:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
    body = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"
    return Answer(200, body.encode(), {"x-adapter-id": adapter_id})


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    fleet = Fleet()
    with answering(fleet.answer) as address:
        for name, value in {"URL": address, "ADMIN_URL": address, "API_KEY": "k", "ADMIN_KEY": "a"}.items():
            monkeypatch.setenv(f"LORAFLEET_{name}", value)
        yield fleet


def probe(*words: str) -> int:
    return main(["probe", "--rate", "50", "--for", "0.4s", *words])


def test_right_answers_are_one_line_and_the_key_is_gone_afterwards(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe() == OK
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.endswith(" own, 0 wrong_marker, 0 missing_marker, 0 failed\n")
    assert (fleet.asked[-1].method, fleet.asked[-1].path) == ("DELETE", "/internal/keys/k7")
    models = {json.loads(asked.body)["model"] for asked in fleet.asked if asked.path == "/v1/chat/completions"}
    assert models == {CANARY.alias, "tiny"}


@pytest.mark.parametrize(("says", "kind"), [("Hello", "missing_marker"), ("", "missing_marker")])
def test_a_wrong_answer_is_a_line_and_the_exit_code(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], says: str, kind: str
) -> None:
    fleet.says = says
    assert probe() == REFUSED
    [first, *_] = capsys.readouterr().err.splitlines()
    assert f" {kind} {CANARY.alias}: {CANARY.adapter_id} said {says!r}, its marker is 'ZK49'" in first


def test_a_fleet_that_does_not_answer_its_canaries_is_no_wrong_answer(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.says = None
    assert probe("--json") == OK  # the base answered
    counts = json.loads(capsys.readouterr().out)
    assert counts["failed"] > counts["own"] > 0


def test_without_canaries_it_says_how_to_get_some(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.adapters = [{"adapter_id": "other", "base_model_hash": BASE_HASH}]
    assert probe() == USAGE
    assert "lorafleet probe --canaries FOLDER" in capsys.readouterr().err


def test_a_folder_whose_marker_cannot_be_an_id_is_named(
    fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "canary.json").write_text('{"marker": "hello world"}')
    (folder / "adapter_model.safetensors").write_bytes(b"x")
    (folder / "adapter_config.json").write_text('{"r": 8, "lora_alpha": 8, "target_modules": ["up_proj"]}')
    assert probe("--canaries", str(tmp_path)) == USAGE
    assert capsys.readouterr().err.startswith(f"{folder} cannot be brought in: the marker 'hello world'")


@pytest.mark.parametrize("words", [("--rate", "0"), ("--for", "1d")])
def test_a_wrong_word_is_refused_before_anything_is_asked(fleet: Fleet, words: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["probe", *words])
    assert ended.value.code == USAGE
    assert fleet.asked == []


def counted(port: int) -> dict[str, float]:
    """The series of a probe that runs, by name and verdict, as Prometheus reads them over HTTP."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).raise_for_status().text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {f"{sample.name}{sample.labels.get('verdict', '')}": sample.value for sample in samples}


def test_its_metrics_are_served_while_it_runs_under_the_names_that_the_guide_alerts_on(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, answer, seen = free_ports(1)[0], fleet._chat, dict[str, float]()

    def look_before_the_third_answer(model: str) -> Answer:
        if len([asked for asked in fleet.asked if asked.path == "/v1/chat/completions"]) == 3:
            eventually(lambda: counted(port).get("lorafleet_probe_answers_totalmissing_marker"), "an answer to count")
            seen.update(counted(port))
        return answer(model)

    fleet.says = "Hello"
    monkeypatch.setattr(fleet, "_chat", look_before_the_third_answer)
    assert probe("--metrics-port", str(port)) == REFUSED
    assert seen["lorafleet_probe_answers_totalmissing_marker"] >= 1
    assert seen["lorafleet_probe_answer_seconds_count"] >= 1
    assert seen["lorafleet_probe_last_answer_timestamp_seconds"] > 1.7e9
    with pytest.raises(httpx.ConnectError):
        counted(port)


def test_a_port_that_is_taken_is_named_before_anything_is_asked(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert probe("--metrics-port", str(port)) == USAGE
    assert capsys.readouterr().err.startswith(f"Port {port} cannot be served: ")
    assert fleet.asked == []


def test_a_fleet_that_hangs_gets_no_backlog_of_questions(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port, answer = free_ports(1)[0], fleet._chat

    def answer_late(model: str) -> Answer:
        eventually(lambda: counted(port).get("lorafleet_probe_answers_totalfailed", 0) >= 3, "questions left out")
        return answer(model)

    monkeypatch.setattr(fleet, "_chat", answer_late)
    monkeypatch.setattr(probe_module, "_AT_ONCE", 2)
    assert probe("--metrics-port", str(port)) == OK
    asked = [asked for asked in fleet.asked if asked.path == "/v1/chat/completions"]
    said = capsys.readouterr()
    left_out = said.err.splitlines()
    assert all("failed" in line and "not asked: 2 questions have no answer yet" in line for line in left_out)
    assert said.out.endswith(f" {len(asked)} own, 0 wrong_marker, 0 missing_marker, {len(left_out)} failed\n")
    assert len(left_out) >= 3


def test_it_goes_on_after_answers_that_were_late_until_ctrl_c(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = fleet._chat

    def interrupt_at_the_fifth(model: str) -> Answer:
        if len([asked for asked in fleet.asked if asked.path == "/v1/chat/completions"]) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return answer(model)

    monkeypatch.setattr(fleet, "_chat", interrupt_at_the_fifth)
    monkeypatch.setattr(probe_module, "_AT_ONCE", 1)
    assert main(["probe", "--rate", "50", "--for", "60s"]) == INTERRUPTED
    assert fleet.asked[-1].method == "DELETE"
    assert "0 wrong_marker" in capsys.readouterr().out


def test_no_answer_at_all_is_no_proof(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    monkeypatch.setattr(fleet, "_chat", lambda model: Answer(503, b"{}"))
    assert probe() == BROKEN
