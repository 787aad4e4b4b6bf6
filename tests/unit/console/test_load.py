"""`lorafleet load`: who is asked what, what is printed and written, and one sentence for what makes no sense."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.console.__main__ import main
from services.console.core.outcome import INTERRUPTED, OK, REFUSED, USAGE
from tests.support.scripted_http import Answer, Asked, answering

EVENTS = {"content-type": "text/event-stream", "x-adapter-tier": "ram"}


def stream(text: str) -> Answer:
    chunks = [
        {"choices": [{"delta": {"content": text}, "finish_reason": None}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    ]
    lines = [*map(json.dumps, chunks), "[DONE]"]
    return Answer(200, "".join(f"data: {line}\n\n" for line in lines).encode(), EVENTS)


Ask = Callable[..., int]


@pytest.fixture
def asked() -> list[Asked]:
    return []


@pytest.fixture
def url(asked: list[Asked]) -> Iterator[str]:
    """Everybody's answer is the name before the slash in capitals; the key may call two adapters and a base."""

    def answer(request: Asked) -> Answer:
        asked.append(request)
        if request.method == "GET":
            names = ("tiny-base", "globex/b:prod", "acme/a:prod")
            return Answer(200, json.dumps({"data": [{"id": name} for name in names]}).encode())
        return stream(json.loads(request.body)["model"].partition("/")[0].upper())

    with answering(answer) as address:
        yield address


def models(asked: list[Asked]) -> set[str]:
    return {json.loads(request.body)["model"] for request in asked if request.method == "POST"}


FAST = ("load", "--key", "sk-a", "--rate", "500", "--requests", "12")


def test_the_keys_own_aliases_are_asked_and_not_the_base(
    url: str, asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FAST, "--url", url, "--json", "--body", '{"user": "u-1"}']) == OK
    figures = json.loads(capsys.readouterr().out)
    assert (figures["requests"], figures["completed"], figures["total_output_tokens"]) == (12, 12, 24)
    assert models(asked) == {"acme/a:prod", "globex/b:prod"}
    assert json.loads(asked[-1].body)["user"] == "u-1"


def test_a_pattern_or_a_file_names_aliases(
    url: str, asked: list[Asked], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FAST, "--url", url, "--aliases", "c{}/bot", "--count", "3", "--zipf", "0"]) == OK
    assert models(asked) == {"c0/bot", "c1/bot", "c2/bot"}
    asked.clear()
    (tmp_path / "aliases").write_text("a/1\na/2\n")
    assert main([*FAST, "--url", url, "--aliases", str(tmp_path / "aliases"), "--one-hot", "1"]) == OK
    assert models(asked) == {"a/1"}
    assert "12 due, 12 completed, 0 failed" in capsys.readouterr().out


def test_a_plan_that_sends_nothing_is_wrong_usage(
    url: str, asked: list[Asked], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["load", "--url", url, "--key", "k", "--day", "1h", "--for", "0.1s", "--out", str(tmp_path / "new")]
    assert main(words) == USAGE
    told = capsys.readouterr()
    sentence = "Nothing was sent: in 0.1 s no request was due. Raise --rate or --for.\n"
    assert (told.out, told.err, models(asked)) == ("", sentence, set())
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("marker", "code"), [("ACME", OK), ("OTHER", REFUSED)])
def test_a_wrong_content_fails_the_run(
    marker: str, code: int, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "markers.json"
    file.write_text(json.dumps({"acme/a:prod": marker, "globex/b:prod": "GLOBEX"}))
    assert main([*FAST, "--url", url, "--check-markers", str(file), "--json"]) == code
    contents = json.loads(capsys.readouterr().out)["contents"]
    assert contents == {"own": 12} if code == OK else contents["missing_marker"] > 0


def test_figures_and_their_page_are_written(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*FAST, "--url", url, "--goodput", "e2el:60000", "--out", str(tmp_path / "new")]
    assert main(words) == OK
    written = json.loads((tmp_path / "new/load.json").read_text())
    assert written["goodput_share"] == 1.0
    page = (tmp_path / "new/load.html").read_text()
    assert "What a load saw" in page
    assert "acme/a:prod" in page
    assert str(tmp_path / "new/load.png") in capsys.readouterr().out


def test_a_sweep_finds_the_rate_that_breaks_the_objective(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*FAST, "--url", url, "--sweep", "2", "--for", "0.1s", "--objective", "0.001", "--out", str(tmp_path)]
    assert main(words) == REFUSED
    told = capsys.readouterr()
    assert "No rate holds; at 500 p95 TTFT is" in told.out or "the load tool itself is late" in told.out
    assert "requests/s" in told.err
    assert len(json.loads((tmp_path / "sweep.json").read_text())["steps"]) == 1
    assert "How much load the fleet bears" in (tmp_path / "sweep.html").read_text()


def test_ctrl_c_ends_with_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    let_go, number = threading.Event(), 0

    def answer(request: Asked) -> Answer:
        nonlocal number
        number += 1
        if number == 4:
            os.kill(os.getpid(), signal.SIGINT)
            let_go.wait(10.0)
        return stream("A")

    with answering(answer) as url:
        words = ["load", "--url", url, "--key", "k", "--aliases", "a/{}", "--count", "1", "--most-streams", "1"]
        assert main([*words, "--rate", "200", "--for", "1h", "--json"]) == INTERRUPTED
        let_go.set()
    figures = json.loads(capsys.readouterr().out)
    assert (figures["completed"], figures["failed"]) == (3, 0)
    assert figures["stopped"] > 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_key_that_is_not_known_is_what_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(request: Asked) -> Answer:
        return Answer(401, b'{"error": {"message": "The API key is not known."}}')

    with answering(answer) as url:
        assert main(["load", "--url", url, "--key", "mistyped"]) == REFUSED
    assert capsys.readouterr().err == "The API key is not known.\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--url", "http://192.0.2.1"], "192.0.2.1 is another machine: add --yes-this-host if you may"),
        (["--url", "ftp://127.0.0.1"], "'ftp://127.0.0.1' is no address such as http://127.0.0.1:8080."),
        (["--aliases", "c{}/bot"], "How many aliases are there like c{}/bot? Add --count."),
        (["--aliases", "/nowhere"], "/nowhere cannot be read: No such file or directory."),
        (["--trace", "/nowhere.csv", "--aliases", "a{}", "--count", "1"], "/nowhere.csv cannot be read"),
        (["--check-markers", "/nowhere.json", "--aliases", "a{}", "--count", "1"], "/nowhere.json cannot be read"),
        (["--keys", "/nowhere.json"], "/nowhere.json cannot be read"),
        (["--body", "[1]", "--aliases", "a{}", "--count", "1"], "'[1]' is no JSON object."),
        (["--most-streams", "999999999", "--aliases", "a{}", "--count", "1"], "1000000063 open files are more than"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["load", "--key", "k", *(["--url", "http://127.0.0.1:9"] if "--url" not in words else []), *words])
        == USAGE
    )
    told = capsys.readouterr()
    assert told.err.startswith(sentence)
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        *(["--rate", "0"], ["--requests", "0"], ["--sweep", "1"], ["--goodput", "speed:1"], ["--for", "soon"]),
        *(["--zipf", "-1"], ["--one-hot", "2"]),
    ],
)
def test_a_load_that_is_none_is_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["load", *words])
    told: Any = capsys.readouterr().err
    assert words[0] in told
