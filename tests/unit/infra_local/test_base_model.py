"""The program that brings the base model, played by small ones that speak like it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from infra.local.base_model import described, provide
from infra.local.preflight import CannotStart
from tests.conftest import Within
from tests.support.waiting import eventually


def program(body: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import os, subprocess, sys\n{body}")


async def test_progress_is_passed_on_and_the_last_line_is_the_folder(tmp_path: Path) -> None:
    said: list[str] = []
    body = "print('download: half'); print('model ' + sys.argv[2] + '/' + os.environ['LORAFLEET_MODEL'])"
    assert await provide(tmp_path, "chosen", said.append, program(body)) == tmp_path / "chosen"
    assert said == ["download: half"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [("sys.exit('no base model: the disk is full')", "^the disk is full$"), ("sys.exit(3)", "exit code 3")],
)
async def test_what_went_wrong_is_one_sentence(tmp_path: Path, body: str, sentence: str) -> None:
    with pytest.raises(CannotStart, match=sentence):
        await provide(tmp_path, None, lambda line: None, program(body))


async def test_a_cancelled_fetch_leaves_neither_the_program_nor_what_it_started(tmp_path: Path, within: Within) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    waits = "import signal; signal.pause()"
    body = f"child = subprocess.Popen([sys.executable, '-c', {waits!r}])\n"
    body += "print(os.getpid(), child.pid, flush=True); child.wait()"
    fetching = asyncio.create_task(provide(tmp_path, None, said.put_nowait, program(body)))
    async with within(20):
        pids = (await said.get()).split()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
    await asyncio.to_thread(eventually, lambda: not any(_runs(pid) for pid in pids), "both to be gone")


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("text", ["{", "[]", '{"model_type": "gpt2"}', json.dumps({"hidden_size": "x"})])
async def test_a_config_of_something_else_names_the_file_and_the_setting(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CannotStart, match=r"config\.json describes no Llama-family model .*LORAFLEET_MODEL"):
        await described(tmp_path, (16,))
