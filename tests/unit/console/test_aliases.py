"""What `lorafleet alias` asks the admin address, and how it tells what it hears."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from services.console.__main__ import main
from services.console.core.outcome import OK, USAGE
from tests.support.scripted_http import Answer, Asked, answering

ALIAS = "acme/support:prod"
PATH = f"/internal/aliases/{ALIAS}"
STATE = {
    "alias": ALIAS, "adapter_id": "v1", "previous_adapter_id": "v0", "revision": 3, "updated_at_s": 60.0,
    "split_adapter_id": "v2", "split_percent": 12.5, "guard": {"probe": True},
}  # fmt: skip
PAST = {
    "row_id": 7, "change": "split", "revision": 3, "adapter_id": "v1", "split_adapter_id": "v2", "split_percent": 12.5,
    "actor": "ann", "reason": "a canary", "at_s": 60.0,
}  # fmt: skip


def answer(asked: Asked) -> Answer:
    path, _, query = asked.path.partition("?")
    if path == "/internal/aliases":
        first = "after" not in query
        return _json({"aliases": [{**STATE, "alias": "acme/a" if first else "acme/b"}], "next": "a" if first else None})
    return _json({"history": [PAST], "next": None} if path.endswith("/history") else STATE)


def _json(body: Any) -> Answer:
    return Answer(200, json.dumps(body).encode())


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Asked]]:
    asked: list[Asked] = []

    def note(request: Asked) -> Answer:
        asked.append(request)
        return answer(request)

    with answering(note) as address:
        for name, value in {"URL": address, "ADMIN_URL": address, "API_KEY": "k", "ADMIN_KEY": "a"}.items():
            monkeypatch.setenv(f"LORAFLEET_{name}", value)
        yield asked


def said(*words: str) -> None:
    assert main(["alias", *words, "--by", "ann", "--reason", "why not"]) == OK


def test_every_change_says_by_whom_and_why(admin: list[Asked]) -> None:
    said("set", ALIAS, "v2", "--expect", "v1", "--force")
    said("rollback", ALIAS)
    said("split", ALIAS, "v2", "12.5")
    said("promote", ALIAS)
    asked = [(one.method, one.path, json.loads(one.body)) for one in admin]
    who = {"by": "ann", "reason": "why not"}
    assert asked == [
        ("PUT", PATH, {"adapter_id": "v2", "expected_adapter_id": "v1", "force": True, **who}),
        ("POST", f"{PATH}/rollback", who),
        ("PUT", f"{PATH}/split", {"adapter_id": "v2", "percent": 12.5, **who}),
        ("POST", f"{PATH}/promote", who),
    ]


def test_what_ends_something_says_so_in_its_query(admin: list[Asked]) -> None:
    said("unsplit", ALIAS)
    said("remove", ALIAS)
    said("remove", ALIAS, "--force")
    assert [(one.method, one.path) for one in admin] == [
        ("DELETE", f"{PATH}/split?by=ann&reason=why+not"), ("DELETE", f"{PATH}?by=ann&reason=why+not"),
        ("DELETE", f"{PATH}?by=ann&reason=why+not&force=true"),
    ]  # fmt: skip


def test_a_guard_is_what_was_said_of_it(admin: list[Asked]) -> None:
    said("set", ALIAS, "v2", "--max-error-rate", "0.05", "--window", "2m", "--hold", "1h")
    said("split", ALIAS, "v2", "5", "--max-error-rate", "0", "--probe")
    said("set", ALIAS, "v2", "--window", "2m")  # which the registry refuses: it is no condition
    said("promote", ALIAS)
    assert [json.loads(one.body).get("guard") for one in admin] == [
        {"max_error_rate": 0.05, "window_s": 120.0, "hold_s": 3600.0},
        {"max_error_rate": 0.0, "probe": True},
        {"window_s": 120.0},
        None,
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("split", ALIAS, "v2", "nan"), ("split", ALIAS, "v2", "inf"), ("split", ALIAS, "v2", "many"),
        ("set", ALIAS, "v2", "--max-error-rate", "nan"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_a_mistake_and_nobody_is_asked(admin: list[Asked], words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["alias", *words])
    assert (ended.value.code, admin) == (USAGE, [])


def test_aliases_are_listed_over_all_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alias", "list", "--tenant", "acme"]) == OK
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["ALIAS", "ADAPTER", "ID", "PREVIOUS"]
    assert (first.split()[0], second.split()[0]) == ("acme/a", "acme/b")
    assert "12.5 % v2" in first


def test_the_history_says_who_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alias", "history", ALIAS]) == OK
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[:5] == ["1970-01-01", "00:01:00", "3", "split", "v1"]
    assert line.endswith("ann    a canary")
