"""A registry between two base models, with a replica of each, and a tenant whose adapters move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec

from shared.bus.port import Ids
from shared.contracts import catalog
from shared.messages.operations import AskFleet, AskOwners, FleetView, Owners
from shared.messages.pools import pool_id
from tests.support.migration_samples import NEW, OLD
from tests.support.registry_place import Place
from tests.support.registry_watch import eventually
from tests.support.registry_world import FakeReplica, World, summary

REPLICA_OF = {pool_id(OLD.base_model_hash, 8): "replica-old", pool_id(NEW.base_model_hash, 8): "replica-new"}


Items = Mapping[str, dict[str, Any]]
"""By adapter."""

DATASET = "s3://data/acme"


def alias(number: int) -> str:
    return f"acme/bot-{number}:prod"


class TwoPools:
    """Placement and one replica in the pool of each base; those that are `down` are not ready."""

    def __init__(self) -> None:
        self.old, self.new = (FakeReplica(name) for name in REPLICA_OF.values())
        self.down: set[str] = set()

    async def serve(self, place: Place) -> None:
        for replica in (self.old, self.new):
            await replica.serve(place.broker.connect("replica_worker"))
        placement = place.broker.connect("placement")
        await placement.serve(catalog.FLEET, self._fleet)
        await placement.serve(catalog.OWNERS, self._owners)

    async def _fleet(self, question: AskFleet, ids: Ids) -> FleetView:
        summaries = (summary(name, pool, ready=name not in self.down) for pool, name in REPLICA_OF.items())
        return FleetView(epoch=1, replicas=tuple(summaries))

    async def _owners(self, question: AskOwners, ids: Ids) -> Owners:
        return Owners(replica_ids=(REPLICA_OF[question.pool_id],), reason="the only one of its pool")


class Moved:
    """What a test does with migrations; `here` is the registry of the moment."""

    def __init__(self, here: World) -> None:
        self.here = here

    new_hash = NEW.base_model_hash

    async def bring(self, *numbers: int, **changes: Any) -> None:
        """Active adapters v1, v2 … on the old base, each under an alias of its own."""
        for number in numbers:
            said = {"alias": alias(number), "dataset_uri": DATASET, **changes}
            await self.here.activated(f"v{number}", seed=number, **said)
            if said["alias"] is not None:
                await self._deployed(said["alias"], f"v{number}")

    async def plan(self, **asked: str) -> dict[str, Any]:
        params = {"from": OLD.base_model_hash, "to": NEW.base_model_hash, **asked}
        found: dict[str, Any] = (await self.here.admin.get("/internal/migrations/plan", params=params)).json()
        return found

    async def start(self, **said: Any) -> httpx.Response:
        body = {"from_base_model_hash": OLD.base_model_hash, "to_base_model_hash": NEW.base_model_hash, **said}
        return await self.here.admin.post("/internal/migrations", json=body)

    async def started(self) -> str:
        answer = await self.start()
        assert answer.status_code == 201
        return str(answer.json()["migration_id"])

    async def post(self, migration_id: str, change: str, **said: Any) -> httpx.Response:
        return await self.here.admin.post(f"/internal/migrations/{migration_id}/{change}", json=said)

    async def status(self, migration_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.here.admin.get(f"/internal/migrations/{migration_id}")).json()
        return found

    async def items(self, migration_id: str) -> Items:
        answer = await self.here.admin.get(f"/internal/migrations/{migration_id}/items")
        return {item["adapter_id"]: item for item in answer.json()["items"]}

    async def settled(self, migration_id: str, **states: str) -> Items:
        """Every item, once these are in these states."""
        return await self.until(
            migration_id, lambda items: all(items[name]["state"] == state for name, state in states.items())
        )

    async def until(self, migration_id: str, right: Callable[[Items], bool]) -> Items:
        async def there() -> bool:
            return right(defaultdict(lambda: {"state": "", "aliases": []}, await self.items(migration_id)))

        await eventually(there)
        return await self.items(migration_id)

    async def trained(self, adapter_id: str, *, seed: int, new_id: str = "", **changes: Any) -> str:
        """A successor on the new base, once it is active."""
        await self.here.activated(new_id := new_id or f"{adapter_id}-new", seed=seed, **_successor(adapter_id, changes))
        return new_id

    async def refused(self, adapter_id: str, *, seed: int) -> str:
        """A successor on the new base that fails its evaluation."""
        announced = self.here.announce(f"{adapter_id}-bad", seed=seed, **_successor(adapter_id, {}))
        assert (await self.here.post(announced)).status_code == 201
        await self.here.reached(announced.adapter_id, "failed")
        return announced.adapter_id

    async def means(self, alias: str) -> str:
        answer = await self.here.admin.get(f"/internal/aliases/{alias}")
        return str(answer.json()["adapter_id"]) if answer.status_code == 200 else ""

    async def _deployed(self, alias: str, adapter_id: str) -> None:
        async def there() -> bool:
            return await self.means(alias) == adapter_id

        await eventually(there)


def _successor(adapter_id: str, changes: dict[str, Any]) -> dict[str, Any]:
    return {"base_model_hash": NEW.base_model_hash, "predecessor_id": adapter_id, **changes}


@asynccontextmanager
async def two_bases(place: Place, **settings: Any) -> AsyncIterator[Moved]:
    """Both base models are known; started again in the same place, everything is as it was."""
    async with place.registry(**{"migration_sweep_s": 0.1, **settings}) as here:
        for base in (OLD, NEW):
            path = f"/internal/base-models/{base.base_model_hash}"
            known = (await here.admin.get("/internal/base-models?retired=true")).json()["base_models"]
            if base.base_model_hash not in [one["base_model_hash"] for one in known]:
                await here.admin.put(path, json=msgspec.to_builtins(base))
        await here.admin.post("/internal/tenants", json={"tenant_id": "acme"})
        yield Moved(here)
