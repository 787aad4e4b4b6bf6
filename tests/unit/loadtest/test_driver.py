"""The driver against a small server: what its clients see, and what it says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadtest import driver
from loadtest.driver import drive
from loadtest.measures import Seen
from loadtest.workload import Arrival
from tests.support.scripted_http import Answer, Asked, answering


def stream(*chunks: dict[str, Any], done: bool = True) -> Answer:
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"] * done
    return Answer(200, "".join(lines).encode(), {"x-adapter-tier": "ram"})


def said(text: str | None, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}


USAGE = {"choices": [], "usage": {"completion_tokens": 3}}
WHOLE = stream(said("MARK"), said("A"), said(None, "stop"), USAGE)


async def see(answer: Callable[[Asked], Answer], *aliases: str) -> list[Seen]:
    load = [Arrival(at_s=0.0, alias=alias, prompt="Hi", max_tokens=3) for alias in aliases]
    with answering(answer) as url:
        seen, wall_s = await drive(url, "key", load)
    assert wall_s > 0
    return seen


async def test_a_whole_answer_is_timed_and_kept() -> None:
    asked: list[Asked] = []

    def answer(request: Asked) -> Answer:
        asked.append(request)
        return WHOLE

    [one] = await see(answer, "acme/a:prod")
    assert (one.outcome, one.tier, one.text, one.tokens) == ("ok", "ram", "MARKA", 3)
    assert one.ttft_s is not None
    assert one.tpot_s is not None
    assert 0 < one.ttft_s <= one.e2el_s
    body = json.loads(asked[0].body)
    assert (body["model"], body["stream"], body["max_tokens"]) == ("acme/a:prod", True, 3)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(503, b"{}"), "503"),
        (stream(said("MAR"), done=False), "cut off"),
        (stream(said("MAR")), "cut off"),
        (stream(said("MAR"), {"error": {"message": "The replica was lost."}}), "The replica was lost."),
        (Answer(200, b"data: {\n\n"), "JSONDecodeError"),
    ],
)
async def test_whatever_is_no_whole_answer_is_named(answer: Answer, outcome: str) -> None:
    [one] = await see(lambda asked: answer, "acme/a:prod")
    assert one.outcome == outcome


async def test_nobody_there_is_an_outcome_too() -> None:
    [one], _ = await drive("http://127.0.0.1:9", "k", [Arrival(at_s=0.0, alias="a", prompt="Hi", max_tokens=1)])
    assert (one.outcome, one.ttft_s) == ("ConnectError", None)


@pytest.mark.parametrize(("marker", "code"), [("MARKA", 0), ("MARKB", 1)])
def test_a_wrong_content_fails_the_run(
    marker: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    markers = tmp_path / "markers.json"
    markers.write_text(json.dumps({"acme/a:prod": marker}))
    with answering(lambda asked: WHOLE) as url:
        words = ["--url", url, "--key", "k", "--rate", "1000", "--requests", "4", "--markers", str(markers)]
        monkeypatch.setattr("sys.argv", ["driver", *words])
        assert driver.main() == code
    figures = json.loads(capsys.readouterr().out)
    assert figures["completed"] == 4
    assert figures["contents"] == {"checked": 4, "own": 4 - 4 * code, "foreign": 0, "missing": 4 * code}


@pytest.mark.parametrize(("words", "sentence"), [(["--key", "k"], "no alias"), (["--alias", "a"], "no key")])
def test_without_an_alias_or_a_key_nothing_is_sent(
    words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("LORAFLEET_ALIASES", "LORAFLEET_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["driver", *words])
    assert driver.main() == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--rate", "0"], ["--requests", "0"], ["--rate", "-1"]])
def test_a_load_that_is_none_is_wrong_usage(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["driver", "--alias", "a", *words])
    with pytest.raises(SystemExit, match="2"):
        driver.main()
    assert words[0] in capsys.readouterr().err
