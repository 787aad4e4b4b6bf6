"""The supervisor with real children that do nothing but live and die."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest

from infra.local.child import Child, clean_environment
from infra.local.fleet import ProcessSpec
from infra.local.layout import Layout
from infra.local.preflight import CannotStart, WrongSetting
from infra.local.restarts import Deaths
from infra.local.supervisor import Supervisor
from tests.conftest import Within
from tests.support.waiting import eventually

NOWHERE = "http://127.0.0.1:9/readyz"
FOREVER = [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "home")
    made.create()
    return made


def test_a_child_gets_no_setting_of_another_service() -> None:
    kept = clean_environment({"LORAFLEET_GATEWAY_PORT": "1", "PATH": "/bin"})
    assert "LORAFLEET_GATEWAY_PORT" not in kept
    assert kept["PATH"] == "/bin"


async def test_a_killed_child_is_started_again_and_its_new_pid_recorded(layout: Layout, within: Within) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    supervisor = Supervisor(layout, said.put_nowait)
    first = supervisor.start_program("sleeper", FOREVER).pid
    keeping = asyncio.create_task(supervisor.keep_alive())
    os.kill(first, signal.SIGKILL)
    async with within(10):
        assert "sleeper ended with exit code -9" in await said.get()
        assert "sleeper runs again" in await said.get()
    assert msgspec.json.decode(layout.pids.read_bytes())["sleeper"] != first
    keeping.cancel()
    await supervisor.stop()


async def test_a_child_that_waits_for_its_restart_keeps_no_other_waiting(layout: Layout, within: Within) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    supervisor = Supervisor(layout, said.put_nowait)
    now_s = time.monotonic()
    supervisor.remember_deaths("patient", Deaths(at_s=(now_s, now_s, now_s)))
    pids = [supervisor.start_program(name, FOREVER).pid for name in ("patient", "quick")]
    keeping = asyncio.create_task(supervisor.keep_alive())
    async with within(20):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            await said.get()
        assert (await said.get()).startswith("quick runs again")
    keeping.cancel()
    await supervisor.stop()


async def test_a_child_that_keeps_dying_ends_the_fleet_with_its_last_words(layout: Layout, within: Within) -> None:
    supervisor = Supervisor(layout, lambda line: None)
    now_s = time.monotonic()
    supervisor.remember_deaths("crasher", Deaths(at_s=(now_s, now_s, now_s, now_s)))
    supervisor.start_program("crasher", [sys.executable, "-c", "raise SystemExit('no model here')"])
    async with within(20):
        assert "no model here" in await supervisor.keep_alive()
    await supervisor.stop()


async def test_a_merged_replica_that_keeps_dying_leaves_the_fleet_alone(layout: Layout, within: Within) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    supervisor = Supervisor(layout, said.put_nowait)
    now_s = time.monotonic()
    supervisor.remember_deaths("merged-0", Deaths(at_s=(now_s, now_s, now_s, now_s)))
    supervisor.start_service(
        ProcessSpec(name="merged-0", module="services.nowhere", env={}, ready_url=NOWHERE, vital=False)
    )
    keeping = asyncio.create_task(supervisor.keep_alive())
    async with within(20):
        told = await said.get()
    assert "starting it again (died 5 times in 60 s)" in told
    assert "services.nowhere" in told
    assert not keeping.done()
    keeping.cancel()
    await supervisor.stop()


async def test_a_replica_that_is_retired_while_it_waits_for_its_restart_stays_away(
    layout: Layout, within: Within
) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    supervisor = Supervisor(layout, said.put_nowait)
    spec = ProcessSpec(name="replica-7", module="services.nowhere", env={}, ready_url=NOWHERE, vital=False)
    supervisor.start_service(spec)
    keeping = asyncio.create_task(supervisor.keep_alive())
    async with within(20):
        assert "starting it again" in await said.get()
        supervisor.retire("replica-7")
        assert await said.get() == "replica-7 has left"
        other = supervisor.start_program("replica-7", FOREVER).pid
        await asyncio.gather(*supervisor._work)
    assert said.empty()
    assert msgspec.json.decode(layout.pids.read_bytes()) == {"replica-7": other}
    keeping.cancel()
    await supervisor.stop()


async def test_a_replica_that_is_retired_during_the_start_is_no_death(layout: Layout) -> None:
    supervisor = Supervisor(layout, lambda line: None)
    child = supervisor.start_program("replica-1", FOREVER)
    os.kill(child.pid, signal.SIGKILL)
    await asyncio.to_thread(eventually, lambda: child.exit_code() is not None, "the child to be dead")
    supervisor.retire("replica-1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await supervisor.no_death()
    await supervisor.stop()


async def test_a_program_that_cannot_be_run_is_no_child(layout: Layout) -> None:
    supervisor = Supervisor(layout, lambda line: None)
    with pytest.raises(OSError, match="nothing-here"):
        supervisor.start_program("replica-1", ["/nothing-here"])
    assert supervisor.names() == frozenset()


async def test_a_child_that_dies_at_start_is_named_with_its_last_words(layout: Layout, within: Within) -> None:
    supervisor = Supervisor(layout, lambda line: None)
    spec = ProcessSpec(name="gateway", module="services.nowhere", env={}, ready_url=NOWHERE)
    supervisor.start_program("sleeper", FOREVER)
    supervisor.start_service(spec)
    async with within(20):
        with pytest.raises(CannotStart, match=r"gateway ended with exit code 1 at start: .*services\.nowhere"):
            await supervisor.no_death()
    await supervisor.stop()


@pytest.mark.parametrize("value", ["nan", "-1", "much"])
async def test_a_child_that_was_told_what_cannot_work_is_no_other_death(
    layout: Layout, within: Within, value: str
) -> None:
    supervisor = Supervisor(layout, lambda line: None)
    env = {"LORAFLEET_AUTOSCALER_UTILISATION": value}
    supervisor.start_service(ProcessSpec(name="autoscaler", module="services.autoscaler", env=env, ready_url=NOWHERE))
    async with within(20):
        with pytest.raises(WrongSetting, match=r"autoscaler ended with exit code 2 at start: .*UTILISATION"):
            await supervisor.no_death()
    await supervisor.stop()


async def test_a_child_that_never_gets_ready_is_named_with_its_log(layout: Layout) -> None:
    supervisor = Supervisor(layout, lambda line: None)
    spec = ProcessSpec(name="gateway", module="this", env={}, ready_url=NOWHERE)
    supervisor.start_service(spec)
    with pytest.raises(CannotStart, match=r"gateway was not ready .*\(no answer yet\).*gateway\.log"):
        await supervisor.wait_ready([spec], timeout_s=0.01)
    await supervisor.stop()


async def test_a_child_that_ignores_the_request_to_end_is_killed(tmp_path: Path, within: Within) -> None:
    deaf = (
        "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    )
    child = Child("deaf", [sys.executable, "-c", deaf], dict(os.environ), tmp_path / "log")
    child.start()
    async with within(20):
        await asyncio.to_thread(eventually, lambda: "deaf" in child.last_words(), "the child to be deaf")
        await child.stop(grace_s=0.05)
    assert child.exit_code() == -signal.SIGKILL
