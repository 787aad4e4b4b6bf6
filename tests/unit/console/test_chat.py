"""`lorafleet chat` as its user sees it, against a gateway that streams by script."""

from __future__ import annotations

import json

import pytest

from services.console.__main__ import main
from services.console.core.outcome import BROKEN, OK, REFUSED
from tests.support.scripted_http import Answer, Asked, answering

HEADERS = {"x-adapter-id": "a1", "x-adapter-tier": "ram", "x-request-id": "r1"}
DONE = "data: [DONE]\n\n"


def chunk(text: str | None, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


def chat(monkeypatch: pytest.MonkeyPatch, answer: Answer, *words: str) -> tuple[int, list[Asked]]:
    """The exit code of the command, and what the gateway was asked."""
    asked: list[Asked] = []

    def note(request: Asked) -> Answer:
        asked.append(request)
        return answer

    with answering(note) as address:
        for name, value in {"URL": address, "ADMIN_URL": "http://x", "API_KEY": "k", "ADMIN_KEY": "a"}.items():
            monkeypatch.setenv(f"LORAFLEET_{name}", value)
        return main(["chat", "acme/a:prod", "Hi there", *words]), asked


def test_the_deltas_become_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(
        200, (chunk("Hel") + ": a comment\n\n" + chunk("lo") + chunk(None, "stop") + DONE).encode(), HEADERS
    )
    code, [asked] = chat(monkeypatch, answer, "--max-tokens", "5")
    assert code == OK
    assert capsys.readouterr().out == "Hello\n"
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert json.loads(asked.body) == {
        "model": "acme/a:prod",
        "messages": [{"role": "user", "content": "Hi there"}],
        "temperature": 0.0,
        "max_tokens": 5,
        "stream": True,
    }


def test_verbose_tells_who_answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    chat(monkeypatch, Answer(200, (chunk("x") + DONE).encode(), HEADERS), "--verbose")
    said = capsys.readouterr()
    assert said.out == "x\n"
    assert said.err.splitlines() == ["x-adapter-id: a1", "x-adapter-tier: ram", "x-request-id: r1"]


def test_a_refusal_is_the_gateways_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"error": {"message": "The model `x` does not exist."}}).encode()
    code, _ = chat(monkeypatch, Answer(404, body))
    assert code == REFUSED
    assert capsys.readouterr() == ("", "The model `x` does not exist.\n")


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        ('data: {"error": {"message": "The replica was lost."}}\n\n', "The replica was lost.\n"),
        ("", "The answer broke off before its end.\n"),
        ("data: <html>\n\n", "The answer has a piece that is none: <html>\n"),
        ('data: {"choices": [{}]}\n\n', 'The answer has a piece that is none: {"choices": [{}]}\n'),
    ],
)
def test_an_answer_that_breaks_off_is_a_failure_below_what_came(
    ending: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = chat(monkeypatch, Answer(200, (chunk("Half") + ending).encode(), HEADERS))
    assert code == BROKEN
    assert capsys.readouterr() == ("Half\n", sentence)
