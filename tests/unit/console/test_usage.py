"""`lorafleet usage` against a small admin server: pages, moments, and sums that do not agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from services.console.__main__ import main
from services.console.commands import usage
from services.console.core.moments import moment_of
from services.console.core.outcome import OK, REFUSED, USAGE
from tests.support.scripted_http import Answer, Asked, answering

REQUESTS = [
    {"call_id": f"c{at}", "request_id": f"q{at}", "adapter_id": "v1", "at_s": 1_764_497_000.0 - at, "outcome": "stop"}
    for at in range(5)
]
DAY = {"tenant_id": "acme", "day": 20_000, "requests": 3, "prompt_tokens": 21, "completion_tokens": 9}
DAYS = [{"day": 20_000, "summed": DAY, "recorded": DAY}]


def page(rows: list[dict[str, Any]], query: dict[str, str], key: str) -> tuple[list[dict[str, Any]], str | None]:
    """As the registry does it: at most `limit` rows after the one that `after` names."""
    names = [row[key] for row in rows]
    start = names.index(query["after"]) + 1 if "after" in query else 0
    found = rows[start : start + int(query["limit"])]
    return found, found[-1][key] if len(found) == int(query["limit"]) else None


class Server:
    """What it was asked, path and query, and the days that it knows."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.days = DAYS

    def answer(self, request: Asked) -> Answer:
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append((parts.path, query))
        if parts.path == "/internal/adapters/gone":
            return Answer(404, json.dumps({"code": "not_found", "message": "There is no adapter gone."}).encode())
        return Answer(200, json.dumps(self._body(parts.path, query)).encode())

    def _body(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        if path == "/internal/usage":
            rows, after = page(REQUESTS, query, "call_id")
            return {"usage": rows, "next": after}
        if path == "/internal/usage/totals":
            total = {"name": "acme", "requests": 3, "completion_tokens": 9, "prompt_tokens": 21}
            return {"by": query["by"], "totals": [total], "next": None}
        if path == "/internal/usage/reconcile":
            return {"tenant_id": "acme", "from_day": 19_990, "days": self.days, "agrees": True}
        if path == "/internal/adapters/gone/stats":
            return {"windows": [], "next": None}
        window = {"window_start": 60.0, "requests": 4, "errors": 1, "tokens": 120, "gpu_hits": 3}
        window |= {"ttft_p50_ms": 120.5, "ttft_p95_ms": None}
        return {"windows": [window], "next": None}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Server, str]]:
    made = Server()
    with answering(made.answer) as address:
        yield made, address


@pytest.fixture(autouse=True)
def server(running: tuple[Server, str], monkeypatch: pytest.MonkeyPatch) -> Server:
    made, address = running
    made.asked, made.days = [], DAYS
    for name, value in {"URL": address, "ADMIN_URL": address, "API_KEY": "k", "ADMIN_KEY": "a"}.items():
        monkeypatch.setenv(f"LORAFLEET_{name}", value)
    return made


def test_which_requests_a_version_served_is_one_command(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "list", "--adapter", "v1"]) == OK
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("ENDED AT")
    assert [line.split()[2] for line in lines] == ["q0", "q1", "q2", "q3", "q4"]
    assert server.asked == [("/internal/usage", {"adapter_id": "v1", "limit": "100"})]


def test_json_is_a_line_each_over_all_pages(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "PAGE", 2)
    assert main(["usage", "list", "--all", "--json"]) == OK
    assert [json.loads(line)["call_id"] for line in capsys.readouterr().out.splitlines()] == [
        "c0", "c1", "c2", "c3", "c4"
    ]  # fmt: skip
    assert [query.get("after") for _, query in server.asked] == [None, "c1", "c3"]
    assert main(["usage", "list", "--limit", "3", "--json"]) == OK
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_span_is_said_by_a_date_or_by_how_long_ago(server: Server) -> None:
    assert main(["usage", "totals", "--by", "alias", "--since", "2026-11-30T10:00", "--until", "2026-12-01"]) == OK
    [(_, query)] = server.asked
    assert query == {"by": "alias", "since_s": "1796032800.0", "until_s": "1796083200.0", "limit": "1000"}
    assert [moment_of(text, 1e6) for text in ("90s", "1h", "7d")] == [1e6 - 90, 1e6 - 3_600, 1e6 - 604_800]
    assert moment_of("1970-01-01T01:00+01:00", 0.0) == 0.0


@pytest.mark.parametrize(
    ("by", "heading"),
    [
        ("tenant", "TENANT REQUESTS PROMPT TOKENS COMPLETION TOKENS"),
        ("alias", "ALIAS REQUESTS PROMPT TOKENS COMPLETION TOKENS"),
        ("adapter", "ADAPTER REQUESTS COMPLETION TOKENS ERRORS GPU HITS"),
    ],
)
def test_sums_show_the_columns_that_there_are(by: str, heading: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "totals", "--by", by]) == OK
    assert " ".join(capsys.readouterr().out.splitlines()[0].split()) == heading


def test_what_is_no_moment_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["usage", "list", "--since", "yesterday"])
    assert left.value.code == USAGE
    assert "'yesterday' is no moment such as" in capsys.readouterr().err


def test_minutes_show_rates_hits_and_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["usage", "stats", "v1"]) == OK
    [_, line] = capsys.readouterr().out.splitlines()
    assert line.split() == ["1970-01-01", "00:01:00", "4", "1", "2.0", "75.0", "120.5", "-"]


def test_minutes_of_nobody_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "stats", "gone"]) == REFUSED
    said = capsys.readouterr()
    assert said.out == ""
    assert "There is no adapter gone." in said.err


def test_sums_that_agree_are_ok_and_others_are_told_by_day(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "reconcile", "--tenant", "acme"]) == OK
    assert capsys.readouterr().out == "acme: OK, 3 requests with 9 completion tokens since 2024-09-24\n"
    server.days = [{"day": 20_000, "summed": DAY, "recorded": {**DAY, "requests": 2, "completion_tokens": 6}}]
    assert main(["usage", "reconcile", "--tenant", "acme"]) == REFUSED
    assert capsys.readouterr().err.splitlines() == [
        "acme differs on 1 of 1 days:",
        "  2024-10-04: 3 requests with 9 tokens summed up and 2 requests with 6 tokens on record",
    ]
