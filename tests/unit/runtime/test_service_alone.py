"""A service as the operating system sees it: a process on uvloop, with signals, exit codes and stderr."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.conftest import Within

ROOT = Path(__file__).parent.parent.parent.parent

SERVICE = """
import asyncio, sys, uvloop
from shared.runtime import logs
from shared.runtime.service import run_main, run_until_stopped
from shared.runtime.settings import SettingsError

class Door:
    async def start(self):
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        if "taken" in sys.argv:
            raise OSError("port 8000 is taken")
        print("open", flush=True)

    async def stop(self):
        print("closing", flush=True)
        if "stuck" in sys.argv:
            await asyncio.Event().wait()
        print("closed", flush=True)

async def main():
    logs.configure("door", "door-1")
    if "unset" in sys.argv:
        raise SettingsError("LORAFLEET_DOOR_PORT is not set, and door has no default for it")
    await run_until_stopped("door", [Door()])

run_main(main())
"""


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    async def end(self) -> tuple[int, str, str]:
        """Exit code, and what was not read yet of stdout and stderr."""
        out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()


@pytest.fixture
async def started() -> AsyncIterator[list[Child]]:
    children: list[Child] = []
    yield children
    for child in children:
        if child.process.returncode is None:
            child.process.kill()
            await child.process.communicate()


async def run(started: list[Child], *arguments: str) -> Child:
    command = (sys.executable, "-c", SERVICE, *arguments)
    started.append(Child(await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=PIPE)))
    return started[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_one_signal_drains_and_is_a_good_end(
    number: signal.Signals, started: list[Child], within: Within
) -> None:
    async with within(30):
        child = await run(started)
        assert await child.line() == "open"
        child.process.send_signal(number)
        code, out, err = await child.end()
    assert (code, out.splitlines()) == (0, ["closing", "closed"])
    assert [msgspec.json.decode(line)["event"] for line in err.splitlines()] == [
        "the service runs",
        "the service stops",
    ]


async def test_a_second_signal_does_not_wait_for_what_is_stuck(started: list[Child], within: Within) -> None:
    async with within(30):
        child = await run(started, "stuck")
        assert await child.line() == "open"
        child.process.send_signal(signal.SIGTERM)
        assert await child.line() == "closing"
        child.process.send_signal(signal.SIGTERM)
        code, _, err = await child.end()
    assert code == 0
    last = msgspec.json.decode(err.splitlines()[-1])
    assert (last["event"], last["parts"]) == ("parts were left behind", ["Door"])


async def test_settings_that_are_wrong_are_one_line_and_exit_code_2(started: list[Child], within: Within) -> None:
    async with within(30):
        code, out, err = await (await run(started, "unset")).end()
    assert (code, out) == (2, "")
    assert err == "LORAFLEET_DOOR_PORT is not set, and door has no default for it\n"


async def test_a_part_that_cannot_start_is_exit_code_1_and_says_why(started: list[Child], within: Within) -> None:
    async with within(30):
        code, out, err = await (await run(started, "taken")).end()
    assert (code, out) == (1, "")
    last = msgspec.json.decode(err.splitlines()[-1])
    assert (last["level"], last["event"]) == ("error", "the service failed")
    assert "port 8000 is taken" in last["error"]
