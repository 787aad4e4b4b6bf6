"""The actuator of embedded fleets on the supervisor's real socket."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.local.door import Door
from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.io.actuator import ActuatorFailed
from services.autoscaler.io.supervised import Supervised
from shared.messages.identity import AdapterKey
from shared.supervision import AskReplicas, ReplicasTold

POOL = PoolSpec(pool_id="base-r16")


class Told:
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[AskReplicas] = []
        self.answer = ReplicasTold(replica_ids=("replica-0",))

    def __call__(self, ask: AskReplicas) -> ReplicasTold:
        self.asked.append(ask)
        return self.answer


@pytest.fixture
def supervisor() -> Told:
    return Told()


@pytest.fixture
async def socket(tmp_path: Path, supervisor: Told) -> AsyncIterator[Path]:
    door = Door(tmp_path / "s.sock", supervisor)
    await door.start()
    yield tmp_path / "s.sock"
    await door.stop()


async def test_who_exists_is_asked_and_an_order_is_passed_on_whole(socket: Path, supervisor: Told) -> None:
    actuator = Supervised(socket, starts_merged=True)
    assert await actuator.existing(POOL) == {"replica-0"}
    await actuator.apply(ScaleOrder(pool=POOL, desired=3, start=2, remove=("replica-7",), epoch=4))
    merged = PoolSpec(pool_id="base-r16-m1", merged=AdapterKey(adapter_id="big-1", digest="d1"))
    await actuator.apply(ScaleOrder(pool=merged, desired=1))
    assert supervisor.asked == [
        AskReplicas(pool_id="base-r16"),
        AskReplicas(pool_id="base-r16", desired=3, remove=("replica-7",), epoch=4),
        AskReplicas(pool_id="base-r16-m1", desired=1, merged_id="big-1", merged_digest="d1"),
    ]


def test_nobody_else_may_use_the_socket(socket: Path) -> None:
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600


async def test_another_fleets_pool_cannot_be_known(socket: Path, supervisor: Told) -> None:
    supervisor.answer = ReplicasTold(known=False)
    assert await Supervised(socket, starts_merged=False).existing(POOL) is None


async def test_what_the_supervisor_could_not_do_is_the_failure(socket: Path, supervisor: Told) -> None:
    supervisor.answer = ReplicasTold(error="no replica can be started: no more processes")
    with pytest.raises(ActuatorFailed, match="no replica can be started: no more processes"):
        await Supervised(socket, starts_merged=False).apply(ScaleOrder(pool=POOL, desired=2))


async def test_a_supervisor_that_is_away_is_a_failure_that_names_its_socket(tmp_path: Path) -> None:
    with pytest.raises(ActuatorFailed, match=r"does not answer on .*nobody\.sock"):
        await Supervised(tmp_path / "nobody.sock", starts_merged=False).existing(POOL)


async def test_a_socket_that_a_killed_supervisor_left_is_taken_over(tmp_path: Path, supervisor: Told) -> None:
    path = tmp_path / "s.sock"
    await asyncio.to_thread(path.touch)
    door = Door(path, supervisor)
    await door.start()
    assert await Supervised(path, starts_merged=False).existing(POOL) == {"replica-0"}
    await door.stop()
    assert not await asyncio.to_thread(path.exists)


async def test_a_question_that_comes_after_the_end_is_not_answered(tmp_path: Path, supervisor: Told) -> None:
    path = tmp_path / "s.sock"
    door = Door(path, supervisor)
    await door.start()
    reader, writer = await asyncio.open_unix_connection(path)
    await Supervised(path, starts_merged=False).existing(POOL)  # who came first was let in before
    await door.stop()
    writer.write(b'{"pool_id": "base-r16", "desired": 3}\n')
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    assert [asked.desired for asked in supervisor.asked] == [None]
    writer.close()


async def test_a_folder_that_is_too_deep_for_a_socket_is_named(tmp_path: Path, supervisor: Told) -> None:
    with pytest.raises(OSError, match="too long for a socket"):
        await Door(tmp_path / ("deep" * 30) / "s.sock", supervisor).start()
