"""Placement on the real bus, as its own process with its own rights."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.bus.nats import NatsBus, connect
from shared.bus.port import Bus, Change
from shared.contracts.catalog import ADAPTER, ASSIGNMENT, BASE_MODEL, FLEET, MEMBERSHIP, OWNERS
from shared.messages.desired import Member
from shared.messages.identity import key_of
from shared.messages.operations import AskFleet, AskOwners, FleetView
from shared.runtime.clock import SystemClock
from shared.runtime.service import periodically
from tests.conftest import Within
from tests.simulation.speakers import BASE_HASH, POOL, Replica, adapter, base_model
from tests.simulation.watching import Followed
from tests.support.bus_worlds import until
from tests.support.nats_server import NatsServer, nats_server

FAST = {"LOST_AFTER_S": "0.6", "LOST_GRACE_S": "60", "FILL_S": "0.3"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path) as server:
        yield server


@asynccontextmanager
async def placement(server: NatsServer, stderr: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    options = server.options("placement")
    settings = {"NATS_URL": options.url, "NATS_PASSWORD": options.password, **FAST}
    environ = {f"LORAFLEET_PLACEMENT_{name}": value for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.placement", env={**os.environ, **environ}, stderr=stderr
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


class Standing:
    """A placement process whose log is read along."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._lines: list[str] = []
        self._spoken = asyncio.Event()

    async def listen(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self._lines.append(line.decode())
            self._spoken.set()

    async def says(self, words: str) -> None:
        """Returns with the next line that has these words; what it said before that is forgotten."""
        while not any(words in line for line in self._lines):
            self._spoken.clear()
            await self._spoken.wait()
        self._lines.clear()


@asynccontextmanager
async def standing(server: NatsServer) -> AsyncIterator[Standing]:
    """Returns once it runs."""
    async with placement(server, asyncio.subprocess.PIPE) as process:
        found = Standing(process)
        listening = asyncio.create_task(found.listen())
        await found.says("the service runs")
        yield found
    await listening


@asynccontextmanager
async def reporting(bus: Bus, replica_id: str, incarnation: str = "first") -> AsyncIterator[Replica]:
    """A replica that reports five times a second until the block ends; then it is as if killed."""
    replica = Replica(bus, replica_id, incarnation=incarnation)
    await replica.start()

    async def say() -> None:
        await replica.report()
        await replica.tell_residency()

    voice = periodically(SystemClock(), 0.2, say)
    await voice.start()
    try:
        yield replica
    finally:
        await voice.stop()


class Watcher:
    """Everybody else's connections, and what gateways see."""

    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._buses: list[NatsBus] = []

    async def __aenter__(self) -> Watcher:
        self.worker, self.registry = await self._bus("replica_worker"), await self._bus("registry")
        await self.registry.state(BASE_MODEL).put(base_model(), BASE_HASH)
        self.memberships = await Followed().start(await self._bus("gateway"), MEMBERSHIP)
        return self

    async def __aexit__(self, *error: object) -> None:
        for bus in self._buses:
            await bus.close()

    async def ready(self, *replica_ids: str) -> dict[str, Member]:
        """Wait until exactly these are routed to."""

        def holds(values: dict[tuple[str, ...], object]) -> dict[str, Member] | None:
            found = values.get((POOL,))
            members = {member.replica_id: member for member in found.members} if found else {}  # type: ignore[attr-defined]
            return members if {name for name, member in members.items() if member.ready} == set(replica_ids) else None

        members: dict[str, Member] = await self.memberships.until(holds)
        return members

    async def epoch(self, epoch: int) -> None:
        await self.memberships.until(lambda values: values[(POOL,)].epoch == epoch)

    async def put(self, adapter_id: str) -> None:
        await self.registry.state(ADAPTER).put(adapter(adapter_id), key_of(adapter_id))

    async def fleet(self) -> FleetView:
        return await self.registry.ask(FLEET, AskFleet(), timeout_s=5.0)

    async def owners(self, adapter_id: str) -> tuple[str, ...]:
        """Asked until placement knows the adapter."""
        question = AskOwners(adapter_id=adapter_id, digest=adapter(adapter_id).digest, pool_id=POOL)
        while not (owners := await self.registry.ask(OWNERS, question, timeout_s=5.0)).replica_ids:
            continue
        return owners.replica_ids

    async def _bus(self, user: str) -> NatsBus:
        bus = await connect(self._server.options(user))
        self._buses.append(bus)
        return bus


async def test_two_replicas_join_one_is_killed_and_comes_back(server: NatsServer, within: Within) -> None:
    async with within(60), Watcher(server) as watcher, placement(server), reporting(watcher.worker, "r1") as first:
        async with reporting(watcher.worker, "r2") as second:
            assert {member.weight for member in (await watcher.ready("r1", "r2")).values()} == {1.0}
            await watcher.put("a")
            owners = await watcher.owners("a")
            by_name = {"r1": first, "r2": second}
            await by_name[owners[0]].until({"a": "gpu"})
            await by_name[owners[1]].until({"a": "ram"})
        lost = (await watcher.ready("r1"))["r2"]
        assert (lost.ready, lost.weight) == (False, 1.0)
        async with reporting(watcher.worker, "r2", "second") as again:
            assert (await watcher.ready("r1", "r2"))["r2"].incarnation == "second"
            assert (await watcher.owners("a"), again.tiers) == (owners, second.tiers)


async def test_the_fleet_shows_what_replicas_hold(server: NatsServer, within: Within) -> None:
    async with within(60), Watcher(server) as watcher, placement(server), reporting(watcher.worker, "r1"):
        await watcher.put("a")
        await watcher.ready("r1")
        while not (replica := (await watcher.fleet()).replicas[0]).gpu:
            continue
        assert ([entry.adapter_id for entry in replica.adapters], replica.assigned) == (["a"], 1)


async def test_a_killed_placement_is_followed_by_one_with_a_higher_epoch(server: NatsServer, within: Within) -> None:
    async with within(60), Watcher(server) as watcher, reporting(watcher.worker, "r1") as replica:
        await watcher.put("a")
        async with placement(server) as process:
            await replica.until({"a": "gpu"})
            process.send_signal(signal.SIGKILL)
        async with placement(server):
            await watcher.epoch(2)
            await watcher.put("b")
            await replica.until({"a": "gpu", "b": "gpu"})
            assert {shard.epoch for shard in replica.shards.values()} == {2}


async def test_a_standby_follows_a_paused_leader_and_the_paused_one_a_killed_one(
    server: NatsServer, within: Within
) -> None:
    """A standby acts less than 5 s after the leader stopped; what the deadline adds is for slow machines."""
    async with within(90), Watcher(server) as watcher, reporting(watcher.worker, "r1") as replica:
        written: list[int] = []

        async def note(change: Change[Any]) -> None:
            written.append(change.value.epoch)

        await watcher.worker.state(ASSIGNMENT).watch(note)
        async with standing(server) as first:
            await watcher.ready("r1")
            async with standing(server) as second:
                first.process.send_signal(signal.SIGSTOP)
                async with within(10):
                    await watcher.epoch(2)
                await watcher.put("a")
                await replica.until({"a": "gpu"})
                first.process.send_signal(signal.SIGCONT)
                await first.says("placement stands by")
                await watcher.put("b")
                await replica.until({"a": "gpu", "b": "gpu"})
                assert set(written[written.index(2) :]) == {2}
                second.process.send_signal(signal.SIGKILL)
                async with within(10):
                    await watcher.epoch(3)
                await watcher.put("c")
                await replica.until({"a": "gpu", "b": "gpu", "c": "gpu"})
                assert written == sorted(written)


async def test_a_restarted_bus_loses_nothing(server: NatsServer, within: Within) -> None:
    async with within(60), Watcher(server) as watcher, placement(server), reporting(watcher.worker, "r1") as replica:
        await watcher.put("a")
        await replica.until({"a": "gpu"})
        await server.restart(kill=True)
        await until(lambda: watcher.registry.connected and watcher.worker.connected)
        await watcher.put("b")
        await replica.until({"a": "gpu", "b": "gpu"})
        assert {shard.epoch for shard in replica.shards.values()} == {1}


async def test_an_unknown_setting_stops_the_process_with_its_name() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.placement",
        env={**os.environ, "LORAFLEET_PLACEMENT_OWNER": "2"}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await process.communicate()
    assert (process.returncode, said.decode().strip()) == (
        2,
        "LORAFLEET_PLACEMENT_OWNER is no setting of placement; did you mean LORAFLEET_PLACEMENT_OWNERS?",
    )
