"""The sentence in a log that says why a service died."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.child import Child
from infra.local.last_words import sentence
from shared.runtime import logs
from tests.conftest import Within
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def restored_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`logs.configure` is for a whole process, and this one has other tests to run."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    level = root.level
    yield
    root.setLevel(level)


def failed(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    """What a service leaves on stderr when it fails with this error."""
    logs.configure("replica_worker", "replica-0")
    log = logs.get_logger(__name__)
    log.info("the service runs", name="replica_worker")
    try:
        raise error
    except Exception as caught:
        log.exception("the service failed", error=caught)
    return capsys.readouterr().err


def test_a_failure_is_its_event_and_its_message_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    log = failed(RuntimeError("it's the engine's \"fault\""), capsys)
    assert "Traceback" in log
    assert sentence(log) == "the service failed: it's the engine's \"fault\""


def test_an_error_with_more_than_a_message_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence(failed(OSError(28, "full"), capsys)) == "the service failed: OSError(28, 'full')"


def test_a_library_that_speaks_after_the_failure_does_not_hide_it(capsys: pytest.CaptureFixture[str]) -> None:
    log = failed(RuntimeError("no memory"), capsys) + "resource_tracker: leaked semaphore\n\n"
    assert sentence(log) == "the service failed: no memory"


@pytest.mark.parametrize(
    "why", ["golden.json was recorded for base model 1, this one is 2", "the golden prompt differs"]
)
def test_a_golden_answer_that_fits_not_says_how_to_record_it(why: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = sentence(failed(RuntimeError(why), capsys))
    assert said.startswith(f"the service failed: {why}; ")
    assert "`lorafleet bases golden FOLDER`" in said


def test_a_setting_that_is_refused_is_the_plain_last_line() -> None:
    info = '{"level":"info","event":"waiting"}\n'
    assert sentence(info + "LORAFLEET_WORKER_SLOTS is 0\n") == "LORAFLEET_WORKER_SLOTS is 0"
    assert sentence(info) == "waiting"
    assert sentence("{no log line\n") == "{no log line"
    assert sentence("") == ""


def test_a_reason_goes_before_an_error() -> None:
    assert sentence('{"level":"error","event":"gone","reason":"worn out","error":"X()"}') == "gone: worn out"


async def test_words_of_an_earlier_life_are_not_the_last(tmp_path: Path, within: Within) -> None:
    log = tmp_path / "log"
    log.write_text('{"level":"error","event":"an old death"}\n')
    child = Child("mute", [sys.executable, "-c", ""], {}, log)
    child.start()
    async with within(20):
        await asyncio.to_thread(eventually, lambda: child.exit_code() is not None, "the child to end")
    assert child.last_words() == ""
