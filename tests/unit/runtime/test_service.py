from __future__ import annotations

import asyncio
import logging
import os
import signal

import pytest

from shared.runtime.service import run_main, run_until_stopped
from shared.runtime.settings import SettingsError
from tests.conftest import Within


class Witness:
    """A part that writes down what is done to it, in a list that several share."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    async def start(self) -> None:
        self.seen.append(f"start {self.name}")

    async def stop(self) -> None:
        self.seen.append(f"stop {self.name}")


class Broken(Witness):
    async def start(self) -> None:
        raise OSError("port 8000 is taken")


class BrokenAtTheEnd(Witness):
    async def stop(self) -> None:
        raise RuntimeError("nothing to close")


class Slow(Witness):
    """Neither `start` nor `stop` ends by itself from the moment that `endless` names it."""

    def __init__(self, name: str, seen: list[str], endless: str) -> None:
        super().__init__(name, seen)
        self.endless = endless
        self.hanging = asyncio.Event()

    async def start(self) -> None:
        await super().start()
        await self._hang("start")

    async def stop(self) -> None:
        await super().stop()
        await self._hang("stop")

    async def _hang(self, what: str) -> None:
        if what == self.endless:
            self.hanging.set()
            await asyncio.Event().wait()


class Signals(Witness):
    """Sends a signal to the process, as the last part that starts."""

    def __init__(self, name: str, seen: list[str], number: signal.Signals = signal.SIGTERM) -> None:
        super().__init__(name, seen)
        self.number = number

    async def start(self) -> None:
        await super().start()
        os.kill(os.getpid(), self.number)


class Asks(Witness):
    """Asks for the end itself, as the last part that starts."""

    def __init__(self, name: str, seen: list[str], asked: asyncio.Event) -> None:
        super().__init__(name, seen)
        self.asked = asked

    async def start(self) -> None:
        await super().start()
        self.asked.set()


@pytest.fixture
def seen() -> list[str]:
    return []


async def test_parts_start_in_order_and_stop_in_reverse(seen: list[str], within: Within) -> None:
    asked = asyncio.Event()
    parts = [Witness("a", seen), Witness("b", seen), Asks("c", seen, asked)]
    async with within(5):
        await run_until_stopped("gateway", parts, stop_asked=asked)
    assert seen == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_the_service(number: signal.Signals, seen: list[str], within: Within) -> None:
    async with within(5):
        await run_until_stopped("gateway", [Witness("a", seen), Signals("b", seen, number)])
    assert seen == ["start a", "start b", "stop b", "stop a"]


async def test_signal_handlers_are_taken_back(seen: list[str], within: Within) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with within(5):
        await run_until_stopped("gateway", [Signals("a", seen)])
    assert signal.getsignal(signal.SIGTERM) == before


async def test_a_part_that_cannot_start_stops_those_before_it(seen: list[str], within: Within) -> None:
    parts = [Witness("a", seen), Witness("b", seen), Broken("c", seen), Witness("d", seen)]
    async with within(5):
        with pytest.raises(OSError, match="port 8000 is taken"):
            await run_until_stopped("gateway", parts)
    assert seen == ["start a", "start b", "stop b", "stop a"]


async def test_a_signal_during_the_start_ends_the_start(seen: list[str], within: Within) -> None:
    slow = Slow("b", seen, endless="start")
    service = asyncio.create_task(run_until_stopped("gateway", [Witness("a", seen), slow, Witness("c", seen)]))
    async with within(5):
        await slow.hanging.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await service
    assert seen == ["start a", "start b", "stop a"]


async def test_a_part_that_fails_to_stop_keeps_no_other_running(
    seen: list[str], within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [Witness("a", seen), BrokenAtTheEnd("b", seen), Signals("c", seen)]
    async with within(5):
        await run_until_stopped("gateway", parts)
    assert seen == ["start a", "start b", "start c", "stop c", "stop a"]
    assert "a part failed to stop" in caplog.messages


async def test_the_deadline_leaves_behind_what_does_not_stop(
    seen: list[str], within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [Witness("a", seen), Slow("b", seen, endless="stop"), Signals("c", seen)]
    async with within(5):
        await run_until_stopped("gateway", parts, stop_deadline_s=0.2)
    assert seen[-2:] == ["stop c", "stop b"]
    assert left_behind(caplog) == {"reason": "the deadline of 0.2 s", "parts": ["Witness", "Slow"]}


async def test_a_second_signal_ends_at_once(seen: list[str], within: Within, caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow("b", seen, endless="stop")
    service = asyncio.create_task(run_until_stopped("gateway", [Witness("a", seen), slow, Signals("c", seen)]))
    async with within(5):
        await slow.hanging.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await service
    assert seen[-2:] == ["stop c", "stop b"]
    assert left_behind(caplog) == {"reason": "a second signal", "parts": ["Witness", "Slow"]}


def left_behind(caplog: pytest.LogCaptureFixture) -> dict[str, object]:
    [record] = [record for record in caplog.records if record.getMessage() == "parts were left behind"]
    fields: dict[str, object] = record.__dict__["lorafleet_fields"]
    return fields


async def _refuse() -> None:
    raise SettingsError("LORAFLEET_GATEWAY_PORT is 'x', which does not fit: Expected int")


async def _break() -> None:
    raise OSError("no room")


async def _end() -> None:
    return


def test_wrong_settings_are_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_main(_refuse())
    assert ended.value.code == 2
    assert capsys.readouterr().err == "LORAFLEET_GATEWAY_PORT is 'x', which does not fit: Expected int\n"


def test_any_other_failure_is_logged_and_exit_code_1(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(SystemExit) as ended:
        run_main(_break())
    assert ended.value.code == 1
    assert caplog.messages == ["the service failed"]
    assert "no room" in caplog.text


def test_a_service_that_ends_well_just_returns() -> None:
    run_main(_end())
