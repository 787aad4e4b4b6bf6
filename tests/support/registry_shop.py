"""A registry that deploys: two owners beside it, and what a test asks of them all day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from shared.bus.port import Bus
from shared.contracts import catalog
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE
from tests.support.registry_place import Place
from tests.support.registry_watch import value_is
from tests.support.registry_world import FakePlacement, FakeReplica, World

POOL = pool_id(BASE.base_model_hash, 8)
ALIAS = "acme/support:prod"
PATH = f"/internal/aliases/{ALIAS}"


class Shop:
    """A registry with two owners that say yes until a test has them say something else."""

    here: World

    def __init__(self, place: Place) -> None:
        self.place = place
        self.placement = FakePlacement(POOL, ("replica-a", "replica-b"))
        self.replicas = FakeReplica("replica-a"), FakeReplica("replica-b")

    @property
    def gateway(self) -> Bus:
        return self.place.broker.connect("gateway")

    def new_loads(self) -> list[str]:
        """What each replica was asked to bring into which tier since the last look, by name."""
        asked = [
            f"{replica.replica_id} {one.adapter_id} {one.tier}" for replica in self.replicas for one in replica.loaded
        ]
        for replica in self.replicas:
            replica.loaded.clear()
        return sorted(asked)

    def fail(self, trouble: str | None, *replicas: FakeReplica) -> None:
        for replica in replicas or self.replicas:
            replica.load_trouble = trouble

    async def versions(self, *adapter_ids: str) -> None:
        """Active ones; the alias means the first."""
        for seed, adapter_id in enumerate(adapter_ids, start=1):
            await self.here.activated(adapter_id, seed=seed, alias=ALIAS if seed == 1 else None)
        self.new_loads()

    async def put(self, adapter_id: str, **said: Any) -> httpx.Response:
        return await self.here.admin.put(PATH, json={"adapter_id": adapter_id, **said})

    async def meant(self) -> str:
        return str((await self.here.admin.get(PATH)).json()["adapter_id"])

    async def is_wanted(self, adapter_id: str, wanted: bool) -> None:
        worker = self.place.broker.connect("replica_worker")
        await value_is(worker, catalog.ADAPTER, key_of(adapter_id), lambda record: record and record.wanted is wanted)


async def shop_in(folder: Path) -> Shop:
    """The replicas and placement of a shop whose registry is yet to be opened, on SQLite and the bus in memory."""
    shop = Shop(Place(folder, f"sqlite+aiosqlite:///{folder}/registry.db"))
    await shop.placement.serve(shop.place.broker.connect("placement"))
    for replica in shop.replicas:
        await replica.serve(shop.place.broker.connect("replica_worker"))
    return shop


@asynccontextmanager
async def open_shop(folder: Path, **changes: Any) -> AsyncIterator[Shop]:
    shop = await shop_in(folder)
    async with shop.place.registry(**changes) as shop.here:
        await shop.here.prepare()
        yield shop
