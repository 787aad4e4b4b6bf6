"""Desired state: last value wins, compare-and-set, watches that are full and stay true. The same for both buses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.bus.port import BusUnavailable, Change, RevisionConflict
from shared.contracts import catalog
from shared.messages.desired import AssignmentShard, TenantRecord
from shared.messages.operations import AskState
from tests.support.bus_samples import sample
from tests.support.bus_worlds import Heard, World, world_of

MANY = 300


@pytest.fixture(params=["memory", "nats"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(request.param, tmp_path) as made:
        yield made


def tenant(tenant_id: str = "t1", weight: float = 1.0) -> TenantRecord:
    return TenantRecord(tenant_id=tenant_id, weight=weight)


def told(changes: list[Change[Any]]) -> list[tuple[str, float | None]]:
    return [(".".join(change.ids), None if change.value is None else change.value.weight) for change in changes]


async def test_a_value_is_read_back_as_it_was_put(world: World) -> None:
    writer, reader = (
        (await world.connect("registry")).state(catalog.TENANT),
        (await world.connect("gateway")).state(catalog.TENANT),
    )
    assert await reader.get("t1") is None
    revision = await writer.put(tenant(weight=2.0), "t1")
    assert await reader.get("t1") == Change(ids=("t1",), value=tenant(weight=2.0), revision=revision)
    newer = await writer.put(tenant(weight=3.0), "t1")
    assert newer > revision
    assert await reader.get("t1") == Change(ids=("t1",), value=tenant(weight=3.0), revision=newer)


async def test_keys_of_several_ids_are_kept_apart(world: World) -> None:
    state, shard = (await world.connect("placement")).state(catalog.ASSIGNMENT), sample(AssignmentShard)
    for replica_id, index in (("r1", "0"), ("r1", "1"), ("r2", "0")):
        await state.put(msgspec.structs.replace(shard, replica_id=replica_id), replica_id, index)
    assert [entry.ids for entry in await state.entries()] == [("r1", "0"), ("r1", "1"), ("r2", "0")]
    found = await state.get("r2", "0")
    assert found is not None
    assert found.value is not None
    assert found.value.replica_id == "r2"


async def test_a_deleted_key_has_no_value(world: World) -> None:
    state = (await world.connect("registry")).state(catalog.TENANT)
    for name in ("t1", "t2"):
        await state.put(tenant(name), name)
    await state.delete("t1")
    await state.delete("t1")
    await state.delete("never-there")
    assert await state.get("t1") is None
    assert [entry.ids for entry in await state.entries()] == [("t2",)]


async def test_a_write_against_an_older_revision_is_refused(world: World) -> None:
    state = (await world.connect("registry")).state(catalog.TENANT)
    first = await state.put(tenant(weight=1.0), "t1")
    second = await state.put(tenant(weight=2.0), "t1", expected_revision=first)
    with pytest.raises(RevisionConflict):
        await state.put(tenant(weight=9.0), "t1", expected_revision=first)
    found = await state.get("t1")
    assert found is not None
    assert (found.value, found.revision) == (tenant(weight=2.0), second)


async def test_a_key_is_deleted_as_it_was_or_not_at_all(world: World) -> None:
    state, heard = (await world.connect("registry")).state(catalog.TENANT), Heard()
    first = await state.put(tenant(weight=1.0), "t1")
    second = await state.put(tenant(weight=2.0), "t1")
    await (await world.connect("gateway")).state(catalog.TENANT).watch(heard)
    with pytest.raises(RevisionConflict):
        await state.delete("t1", expected_revision=first)
    assert (await state.get("t1")) is not None
    await state.delete("t1", expected_revision=second)
    assert told(await heard.reach(2)) == [("t1", 2.0), ("t1", None)]
    with pytest.raises(RevisionConflict):
        await state.delete("t1", expected_revision=second)
    assert await state.put(tenant(), "t1", expected_revision=0) > second


async def test_revision_0_means_that_the_key_must_not_exist(world: World) -> None:
    state = (await world.connect("registry")).state(catalog.TENANT)
    await state.put(tenant(), "t1", expected_revision=0)
    with pytest.raises(RevisionConflict):
        await state.put(tenant(), "t1", expected_revision=0)
    await state.delete("t1")
    revision = await state.put(tenant(weight=4.0), "t1", expected_revision=0)
    with pytest.raises(RevisionConflict):
        await state.put(tenant(), "t1", expected_revision=0)
    assert await state.get("t1") == Change(ids=("t1",), value=tenant(weight=4.0), revision=revision)


async def test_a_watch_is_full_when_it_returns_and_then_follows(world: World) -> None:
    writer, reader, heard = (
        (await world.connect("registry")).state(catalog.TENANT),
        await world.connect("gateway"),
        Heard(),
    )
    for n in range(MANY):
        await writer.put(tenant(f"t{n}", n), f"t{n}")
    await writer.delete("t0")

    async def slowly(change: Change[TenantRecord]) -> None:
        await asyncio.sleep(0)
        await heard(change)

    await reader.state(catalog.TENANT).watch(slowly)
    assert told(heard.calls) == [(f"t{n}", n) for n in range(1, MANY)]
    await writer.put(tenant("t1", 0.5), "t1")
    await writer.delete("t2")
    await writer.put(tenant("t0", 7.0), "t0")
    changes = (await heard.reach(MANY + 2))[MANY - 1 :]
    assert told(changes) == [("t1", 0.5), ("t2", None), ("t0", 7.0)]
    assert [change.revision for change in changes] == sorted(change.revision for change in changes)


async def test_a_watch_of_nothing_is_full_at_once(world: World) -> None:
    gateway, heard = await world.connect("gateway"), Heard()
    await gateway.state(catalog.TENANT).watch(heard)
    assert heard.calls == []


async def test_leading_ids_narrow_a_watch(world: World) -> None:
    placement, worker, heard = (
        (await world.connect("placement")).state(catalog.ASSIGNMENT),
        await world.connect("replica_worker"),
        Heard(),
    )
    shard = sample(AssignmentShard)
    await placement.put(shard, "r1", "0")
    await placement.put(shard, "r2", "0")
    await worker.state(catalog.ASSIGNMENT).watch(heard, "r1")
    await placement.put(shard, "r2", "1")
    await placement.put(shard, "r1", "1")
    assert [change.ids for change in await heard.reach(2)] == [("r1", "0"), ("r1", "1")]


async def test_a_watcher_that_fails_is_told_the_next_change(world: World) -> None:
    writer, reader, heard = (
        (await world.connect("registry")).state(catalog.TENANT),
        await world.connect("gateway"),
        Heard(),
    )

    async def fail_on_first(change: Change[TenantRecord]) -> None:
        if change.ids == ("t1",):
            raise ValueError("no")
        await heard(change)

    await writer.put(tenant("t1"), "t1")
    await reader.state(catalog.TENANT).watch(fail_on_first)
    await writer.put(tenant("t2"), "t2")
    assert told(await heard.reach(1)) == [("t2", 1.0)]


async def test_an_undecodable_value_is_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    registry, gateway, heard = await world.connect("registry"), await world.connect("gateway"), Heard()
    await registry.state(replace(catalog.TENANT, message=AskState)).put(AskState(), "t1")
    await registry.state(catalog.TENANT).put(tenant("t2"), "t2")
    await gateway.state(catalog.TENANT).watch(heard)
    assert told(heard.calls) == [("t2", 1.0)]
    assert await gateway.state(catalog.TENANT).get("t1") is None
    assert [entry.ids for entry in await gateway.state(catalog.TENANT).entries()] == [("t2",)]
    assert "not a message of channel tenant" in caplog.text


async def test_a_closed_watch_is_told_nothing(world: World) -> None:
    writer, gateway, closed, still_open = (
        (await world.connect("registry")).state(catalog.TENANT),
        await world.connect("gateway"),
        Heard(),
        Heard(),
    )
    watch = await gateway.state(catalog.TENANT).watch(closed)
    await gateway.state(catalog.TENANT).watch(still_open)
    await watch.close()
    await watch.close()
    await writer.put(tenant(), "t1")
    await still_open.reach(1)
    assert closed.calls == []


async def test_a_watch_may_be_closed_by_the_one_it_tells(world: World) -> None:
    writer, gateway, heard, still_open = (
        (await world.connect("registry")).state(catalog.TENANT),
        await world.connect("gateway"),
        Heard(),
        Heard(),
    )

    async def close(change: Change[TenantRecord]) -> None:
        await watch.close()
        await asyncio.sleep(0)
        await heard(change)

    watch = await gateway.state(catalog.TENANT).watch(close)
    await gateway.state(catalog.TENANT).watch(still_open)
    for name in ("t1", "t2"):
        await writer.put(tenant(name), name)
    await still_open.reach(2)
    assert told(await heard.reach(1)) == [("t1", 1.0)]


async def test_after_a_reconnect_a_watch_tells_everything_again(world: World) -> None:
    writer, gateway, heard = (
        (await world.connect("registry")).state(catalog.TENANT),
        await world.connect("gateway"),
        Heard(),
    )
    for name in ("t1", "t2"):
        await writer.put(tenant(name), name)
    await gateway.state(catalog.TENANT).watch(heard)
    await world.lose()
    await world.find()
    assert sorted(told((await heard.reach(4))[2:])) == [("t1", 1.0), ("t2", 1.0)]
    await writer.put(tenant("t1", 5.0), "t1")
    assert told((await heard.reach(5))[4:]) == [("t1", 5.0)]


async def test_while_the_bus_is_away_state_says_so(world: World) -> None:
    state = (await world.connect("registry")).state(catalog.TENANT)
    await world.lose()
    for attempt in (
        state.put(tenant(), "t1"),
        state.get("t1"),
        state.delete("t1"),
        state.entries(),
        state.watch(Heard()),
    ):
        with pytest.raises(BusUnavailable):
            await attempt
    await world.find()
    assert await state.put(tenant(), "t1") > 0


async def test_only_the_writer_writes_and_only_readers_read(world: World) -> None:
    gateway, worker = await world.connect("gateway"), await world.connect("replica_worker")
    with pytest.raises(PermissionError, match="gateway may not write on channel alias"):
        await gateway.state(catalog.ALIAS).put(sample(catalog.ALIAS.message), "a1")
    with pytest.raises(PermissionError, match="gateway may not write on channel alias"):
        await gateway.state(catalog.ALIAS).delete("a1")
    with pytest.raises(PermissionError, match="replica_worker may not read channel api_key"):
        worker.state(catalog.API_KEY)
