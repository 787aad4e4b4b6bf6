"""`lorafleet limits` against a small admin server: what is asked, and what people read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from services.console.__main__ import main
from services.console.core.outcome import OK, USAGE
from tests.support.scripted_http import Answer, Asked, answering

LIMITS = {"requests_per_min": 60, "tokens_per_min": None, "streams": 4}
SHOWN = {"tenant_id": "acme", "limits": LIMITS, "keys": [{"key_id": "k1", "tenant_id": "acme", "limits": LIMITS}]}


class Server:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []

    def answer(self, request: Asked) -> Answer:
        self.asked.append((request.method, request.path, json.loads(request.body or b"null")))
        return Answer(200, json.dumps(SHOWN).encode())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    served = Server()
    with answering(served.answer) as url:
        monkeypatch.setenv("LORAFLEET_ADMIN_URL", url)
        monkeypatch.setenv("LORAFLEET_ADMIN_KEY", "k")
        monkeypatch.setenv("LORAFLEET_URL", url)
        monkeypatch.setenv("LORAFLEET_API_KEY", "k")
        yield served


def test_they_are_shown_of_a_tenant_and_of_its_keys(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits", "show", "acme"]) == OK
    heading, tenant, key = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[0] == "OF"
    assert tenant.split() == ["tenant", "acme", "60", "-", "4"]
    assert key.split() == ["key", "k1", "60", "-", "4"]
    assert server.asked == [("GET", "/internal/tenants/acme/limits", None)]


def test_only_what_is_named_is_changed(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits", "set", "acme", "--requests-per-min", "60", "--tokens-per-min", "none"]) == OK
    changed = {"requests_per_min": 60, "tokens_per_min": None}
    assert server.asked == [("PATCH", "/internal/tenants/acme/limits", changed)]
    assert "60 requests a minute, any number of tokens a minute, 4 streams" in capsys.readouterr().out


def test_a_keys_limits_are_those_of_a_key_of_the_tenant(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits", "set", "acme", "--key", "k1", "--streams", "2"]) == OK
    assert server.asked[-1] == ("PATCH", "/internal/keys/k1/limits", {"streams": 2})
    assert main(["limits", "set", "acme", "--key", "k9", "--streams", "2"]) == USAGE
    assert "has no key k9" in capsys.readouterr().err
    assert server.asked[-1][0] == "GET", "nothing was changed"


@pytest.mark.parametrize("words", [["--streams", "0"], ["--streams", "-1"], ["--tokens-per-min", "lots"]])
def test_what_is_no_limit_asks_nobody(server: Server, words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["limits", "set", "acme", *words])
    assert server.asked == []


def test_nothing_named_is_a_mistake(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits", "set", "acme"]) == USAGE
    assert "--requests-per-min" in capsys.readouterr().err
