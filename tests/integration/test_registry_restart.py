"""What the registry has committed is told to the bus, whatever dies in between."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.port import Bus, BusUnavailable, StateStore
from shared.contracts import catalog
from shared.contracts.channel import Channel
from shared.messages.desired import AliasRecord, TenantRecord
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from shared.runtime.clock import ManualClock
from shared.store.file import FileStore
from shared.store.port import StoreUnavailable
from tests.support.adapter_files import BASE
from tests.support.registry_world import FakePlacement, FakeReplica, Heard, World, eventually, world

POOL = pool_id(BASE.base_model_hash, 8)
ALIAS = "acme/support:prod"


class Broken:
    """The registry's bus; what it says is lost from the moment `broken` is true, as if it had been killed."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish(self, *arguments: Any, **options: Any) -> None:
        if self.broken:
            raise BusUnavailable("planted")
        await self._bus.publish(*arguments, **options)

    def state(self, channel: Channel[Any, Any]) -> StateStore[Any]:
        if self.broken:
            raise BusUnavailable("planted")
        return self._bus.state(channel)


class Place:
    """Where one registry after another lives: the same folder, the same broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = MemoryBroker()
        self.registry_bus: Broken | None = None

    async def connect(self, service: str) -> Bus:
        bus = self.broker.connect(service)
        if service != "registry":
            return bus
        self.registry_bus = Broken(bus)
        return self.registry_bus  # type: ignore[return-value]

    def cut(self) -> None:
        assert self.registry_bus is not None
        self.registry_bus.broken = True

    def heal(self) -> None:
        assert self.registry_bus is not None
        self.registry_bus.broken = False

    def registry(self, **changes: Any) -> Any:
        return world(self.folder, self.connect, **changes)

    async def replicas(self, *replica_ids: str) -> list[FakeReplica]:
        replicas = [FakeReplica(replica_id) for replica_id in replica_ids]
        for replica in replicas:
            await replica.serve(self.broker.connect("replica_worker"))
        await FakePlacement(POOL, replica_ids).serve(self.broker.connect("placement"))
        return replicas


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def ready(here: World) -> None:
    async def is_ready() -> bool:
        return (await here.admin.get("/readyz")).status_code == 200

    await eventually(is_ready)


async def value_is(bus: Bus, channel: Channel[Any, Any], key: str, right: Callable[[Any], bool]) -> None:
    async def told() -> bool:
        change = await bus.state(channel).get(key)
        return right(change.value if change else None)

    await eventually(told)


# -- the outbox ----------------------------------------------------------------------------------------


async def test_what_was_committed_before_a_crash_is_told_by_the_next_start(place: Place) -> None:
    verified = await Heard().follow(place.broker.connect("pipeline"), catalog.ADAPTER_VERIFIED)
    async with place.registry() as here:
        await here.prepare()
        await ready(here)
        place.cut()
        announced = here.announce("v1")
        assert (await here.post(announced)).status_code == 201
    assert verified.messages == []
    async with place.registry():
        [found] = await verified.first()
        assert found.digest == announced.checksum
        worker = place.broker.connect("replica_worker")
        await value_is(worker, catalog.ADAPTER, key_of("v1"), lambda record: record is not None)


async def test_a_crash_between_publishing_and_marking_repeats_the_same_message(place: Place) -> None:
    """The second publication has the first one's message id, so that the bus stores it once."""
    async with place.registry() as here:
        await here.prepare()
        await here.post(here.announce("v1"))
        await ready(here)
        async with here.registry.database.write() as connection:
            await connection.exec_driver_sql("UPDATE outbox SET published_at_s = NULL")
    verified = await Heard().follow(place.broker.connect("pipeline"), catalog.ADAPTER_VERIFIED)
    async with place.registry() as here:
        await ready(here)
        await here.post(here.announce("v2", seed=2))
        assert [message.adapter_id for message in await verified.first(2)] == ["v1", "v2"]


async def test_kill_9_between_commit_and_publish_loses_nothing(place: Place) -> None:
    """A real process that kills itself the moment it would publish."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.dying_registry", str(place.folder), cwd=Path(__file__).parents[2]
    )
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL
    async with place.registry():
        gateway = place.broker.connect("gateway")
        await value_is(
            gateway, catalog.TENANT, "acme", lambda tenant: tenant == TenantRecord(tenant_id="acme", weight=3.0)
        )


async def test_values_arrive_in_the_order_they_were_committed(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        await ready(here)
        place.cut()
        for weight in range(1, 20):
            await here.admin.post("/internal/tenants", json={"tenant_id": "acme", "weight": weight})
        weights: list[float] = []
        gateway = place.broker.connect("gateway")

        async def on_change(change: Any) -> None:
            weights.append(change.value.weight)

        await gateway.state(catalog.TENANT).watch(on_change)
        place.heal()
        await value_is(gateway, catalog.TENANT, "acme", lambda tenant: tenant is not None and tenant.weight == 19)

        async def all_seen() -> bool:
            return bool(weights) and weights[-1] == 19.0

        await eventually(all_seen)
        assert weights == sorted(weights)


async def test_a_row_that_no_bus_takes_does_not_hold_up_the_others(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        await ready(here)
        async with here.registry.database.write() as connection:
            insert = "INSERT INTO outbox (message_id, channel, ids, payload, created_at_s) VALUES ('m', ?, '[]', ?, 0)"
            for row in (("no.such.channel", "{}"), ("adapter.verified", "{"), ("tenant", '{"tenant_id": "x"}')):
                await connection.exec_driver_sql(insert, row)
        await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})
        gateway = place.broker.connect("gateway")
        await value_is(gateway, catalog.TENANT, "globex", lambda tenant: tenant is not None)


async def test_the_bus_may_be_away_while_operators_work(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        await ready(here)
        place.cut()
        assert (await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})).status_code == 201
        place.heal()
        gateway = place.broker.connect("gateway")
        await value_is(gateway, catalog.TENANT, "globex", lambda tenant: tenant is not None)


# -- reconciliation ------------------------------------------------------------------------------------


async def test_buckets_that_lost_or_kept_too_much_are_repaired_at_the_start(place: Place) -> None:
    await place.replicas("replica-a")
    async with place.registry() as here:
        await here.prepare()
        await here.activated("v1", alias=ALIAS)
        gateway = place.broker.connect("gateway")
        await value_is(gateway, catalog.ALIAS, key_of(ALIAS), lambda record: record is not None)
        right: AliasRecord = (await gateway.state(catalog.ALIAS).get(key_of(ALIAS))).value  # type: ignore[union-attr,assignment]
    writer = place.broker.connect("registry")
    await writer.state(catalog.ALIAS).delete(key_of(ALIAS))
    await writer.state(catalog.TENANT).put(TenantRecord(tenant_id="acme", weight=99.0), "acme")
    await writer.state(catalog.TENANT).put(TenantRecord(tenant_id="ghost"), "ghost")
    async with place.registry() as here:
        await ready(here)
        assert (await gateway.state(catalog.ALIAS).get(key_of(ALIAS))).value == right  # type: ignore[union-attr]
        tenants = {change.value for change in await gateway.state(catalog.TENANT).entries()}
        assert tenants == {TenantRecord(tenant_id="acme", weight=1.0)}


async def test_buckets_are_compared_again_and_again(place: Place) -> None:
    clock = ManualClock()
    async with place.registry(clock=clock) as here:
        await here.prepare()
        await ready(here)
        await place.broker.connect("registry").state(catalog.TENANT).delete("acme")
        await clock.advance(301.0)
        gateway = place.broker.connect("gateway")
        await value_is(gateway, catalog.TENANT, "acme", lambda tenant: tenant is not None)


async def test_it_is_not_ready_before_the_bus_knows_everything(place: Place) -> None:
    async with place.registry() as here:
        await ready(here)
        await here.prepare()
    place_bus = place.connect

    async def connect_broken(service: str) -> Bus:
        bus = await place_bus(service)
        place.cut()
        return bus

    async with world(place.folder, connect_broken) as here:
        answer = await here.admin.get("/readyz")
        assert (answer.status_code, "has not been told" in answer.json()["error"]["message"]) == (503, True)
        place.heal()
        await ready(here)


# -- evaluations ---------------------------------------------------------------------------------------


async def test_an_evaluation_is_resumed_after_a_restart_with_the_deadline_it_had(place: Place) -> None:
    clock = ManualClock()
    async with place.registry(clock=clock) as here:
        await here.prepare()
        await here.post(here.announce("v1", alias=ALIAS))
        before = await here.reached("v1", "evaluating")
    assert before["deadline_s"] == 600.0
    await clock.advance(500.0)
    await place.replicas("replica-a")
    async with place.registry(clock=clock) as here:
        after = await here.reached("v1", "active")
        assert [move["state"] for move in after["history"]] == ["registered", "verified", "evaluating", "active"]


async def test_a_deadline_that_passed_while_it_was_away_is_kept(place: Place) -> None:
    clock = ManualClock()
    async with place.registry(clock=clock) as here:
        await here.prepare()
        await here.post(here.announce("v1"))
        await here.reached("v1", "evaluating")
    await clock.advance(601.0)
    async with place.registry(clock=clock) as here:
        assert "before its deadline" in (await here.reached("v1", "failed"))["reason"]


# -- the store and the files -----------------------------------------------------------------------------


class Moody:
    """A planted fault of the store: `away` is raised by every put."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away: Exception | None = None
        put = FileStore.put

        async def moody(store: FileStore, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
            if self.away is not None:
                raise self.away
            return await put(store, key, chunks, digest)

        monkeypatch.setattr(FileStore, "put", moody)


async def test_a_store_that_is_away_is_no_defect(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Moody(monkeypatch)
    async with place.registry() as here:
        await here.prepare()
        store.away = StoreUnavailable("planted")
        announced = here.announce("v1")
        answer = await here.post(announced)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert await here.status("v1") is None
        store.away = None
        assert (await here.post(announced)).status_code == 201


async def test_an_event_that_met_a_store_that_is_away_comes_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Moody(monkeypatch)
    async with place.registry() as here:
        await here.prepare()
        store.away = StoreUnavailable("planted")
        pipeline = place.broker.connect("pipeline")
        rejected = await Heard().follow(pipeline, catalog.ADAPTER_REJECTED)
        await pipeline.publish(catalog.ADAPTER_REGISTERED, here.announce("v1"))
        await pipeline.publish(catalog.ADAPTER_REGISTERED, here.announce("v2", rank=99))
        await rejected.first()
        assert await here.status("v1") is None
        store.away = None
        await here.reached("v1", "evaluating")
        assert [message.adapter_id for message in rejected.messages] == ["v2"]


async def test_a_file_that_changes_between_check_and_copy_is_not_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = FileStore.put
    async with place.registry() as here:
        await here.prepare()
        announced = here.announce("v1")
        weights = here.folder / "inbox" / "v1" / "adapter_model.safetensors"

        async def late(store: FileStore, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
            weights.write_bytes(weights.read_bytes()[:-1] + b"x")
            return await put(store, key, chunks, digest)

        monkeypatch.setattr(FileStore, "put", late)
        answer = await here.post(announced)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "weights_changed")
        assert not list((here.folder / "store").rglob("*.safetensors"))


async def test_c29_registration_touches_nothing_but_the_adapters_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No route to any model repository: every attempt to open a connection is planted to fail."""
    async with place.registry() as here:
        await here.prepare()

        async def no_route(*arguments: Any, **options: Any) -> None:
            raise OSError("no route to host")

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", no_route, raising=False)
        monkeypatch.setattr("socket.socket.connect", lambda *_: (_ for _ in ()).throw(OSError("no route to host")))
        assert (await here.post(here.announce("v1"))).status_code == 201
