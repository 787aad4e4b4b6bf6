"""A fleet of its own with adapters on it, ready to be asked: each adapter is a customer's only one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from infra.adapters.random_adapter import write_random_adapter
from infra.local.temporary import TemporaryFleet, temporary_fleet
from loadtest.isolation_fleet import Operator
from loadtest.isolation_plan import Deployed
from shared.messages.desired import AdapterRecord

_POLL_S = 0.1
_STILL_S = 0.5
_DEADLINE_S = 90.0


CHUNK_TOKENS = {"torch": 128, "vllm": 512, "timed": 512}
"""Of prompts in a step, by engine, unless its policy says otherwise."""


@dataclass(frozen=True, kw_only=True)
class FleetShape:
    """What the fleet is started with. `more` are further settings of it, in lower case."""

    model: Path
    engine: str = "torch"
    replicas: int = 2
    slots: int = 8
    max_rows: int = 32
    rank: int = 8
    more: tuple[tuple[str, str], ...] = ()

    @property
    def replica_ids(self) -> tuple[str, ...]:
        return tuple(f"replica-{at}" for at in range(self.replicas))

    def settings(self) -> dict[str, str]:
        return {
            "model": str(self.model), "engine": self.engine, "replicas": str(self.replicas), "slots": str(self.slots),
            "max_rows": str(self.max_rows), "threads": "1", "demo": "false", "registry_evaluations_at_once": "8",
            "gateway_shed_late": "false", **dict(self.more),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Customer:
    alias: str
    key: str
    record: AdapterRecord


@dataclass(frozen=True, kw_only=True)
class Stage:
    """`spare` are the sizes in bytes of adapters that no alias names, by their ids: nobody but an operator loads
    them."""

    fleet: TemporaryFleet
    shape: FleetShape
    customers: tuple[Customer, ...]
    spare: dict[str, int]

    @property
    def gateway_log(self) -> Path:
        return self.fleet.layout.logs / "gateway.log"

    @property
    def metrics_ports(self) -> tuple[int, ...]:
        """Of the replicas."""
        first = int(self.fleet.environ["LORAFLEET_PROBE_PORT"]) + 2
        return tuple(first + at for at in range(self.shape.replicas))

    def admin(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.fleet.connection.admin_key}"}
        return httpx.AsyncClient(
            base_url=self.fleet.connection.admin_url, headers=headers, timeout=60.0, trust_env=False
        )


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Folders by adapter id."""

    customers: dict[str, Path]
    spare: dict[str, Path]


def write_adapters(shape: FleetShape, folder: Path, count: int) -> Adapters:
    """One for each of so many customers, and two spare ones of different sizes. The same model, the same adapters."""
    spare = {f"spare-{rank}": rank for rank in (max(1, shape.rank // 8), 2 * shape.rank)}
    return Adapters(
        customers={
            name: write_random_adapter(shape.model, folder / name, shape.rank, seed=at)
            for at, name in enumerate(f"customer-{at:02d}" for at in range(count))
        },
        spare={
            name: write_random_adapter(shape.model, folder / name, rank, seed=count + rank)
            for name, rank in spare.items()
        },
    )


@contextmanager
def staged(shape: FleetShape, home: Path, adapters: Adapters) -> Iterator[Stage]:
    """Start it, bring the adapters in, and stop it. Raises FleetDidNotStart."""
    with temporary_fleet(home, **shape.settings()) as fleet:
        stage = asyncio.run(_with_adapters(Stage(fleet=fleet, shape=shape, customers=(), spare={}), adapters))
        asyncio.run(settled(stage))
        yield stage


async def settled(stage: Stage) -> None:
    """Returns once every replica serves, has every adapter on disk, and moves none any more."""
    async with stage.admin() as http, asyncio.timeout(_DEADLINE_S):
        least = len(stage.customers)
        await asyncio.gather(*(_still(http, replica_id, least) for replica_id in stage.shape.replica_ids))


async def held_by(stage: Stage, replica_id: str) -> dict[str, str]:
    """The highest tier of every customer's adapter that this replica holds, by adapter id."""
    async with stage.admin() as http:
        state = (await http.get(f"/internal/replicas/{replica_id}/state")).raise_for_status().json()
    tiers = {name: tier for tier in ("disk", "ram", "gpu") for name in state[f"{tier}_adapters"]}
    return {each.record.adapter_id: tiers[each.record.adapter_id] for each in stage.customers
            if each.record.adapter_id in tiers}  # fmt: skip


async def _still(admin: httpx.AsyncClient, replica_id: str, least: int) -> None:
    before: object = None
    while (held := await _held(admin, replica_id, least)) is None or held != before:
        before = held
        await asyncio.sleep(_STILL_S)


async def _held(admin: httpx.AsyncClient, replica_id: str, least: int) -> object:
    """What a replica holds in its tiers; None while that is not all, or it does not serve."""
    answer = await admin.get(f"/internal/replicas/{replica_id}/state")
    state: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    held = tuple(tuple(state.get(f"{tier}_adapters", ())) for tier in ("gpu", "ram", "disk"))
    return held if state.get("ready") and len(held[-1]) >= least else None


async def _with_adapters(stage: Stage, adapters: Adapters) -> Stage:
    first, *others = adapters.customers
    deployed = [_deployed(first, *adapters.spare), *map(_deployed, others)]
    async with stage.admin() as http:
        operator = Operator(http)
        keys = [await operator.tenant_key(each.tenant) for each in deployed]
        _, base_hash = await operator.base()
        await operator.deploy(deployed, {**adapters.customers, **adapters.spare}, base_hash)
        customers = [
            Customer(alias=each.alias, key=key, record=await _record(http, each.tenant))
            for each, key in zip(deployed, keys, strict=True)
        ]
        spare = {name: (await _record(http, name)).size_bytes for name in adapters.spare}
    await _until_known(stage, customers[-1])
    return replace(stage, customers=tuple(customers), spare=spare)


async def _until_known(stage: Stage, customer: Customer) -> None:
    """An alias that the registry has granted reaches the gateway a moment later."""
    headers = {"Authorization": f"Bearer {customer.key}"}
    client = httpx.AsyncClient(base_url=stage.fleet.connection.url, headers=headers, trust_env=False)
    async with client as http, asyncio.timeout(_DEADLINE_S):
        while True:
            if customer.alias in {each["id"] for each in (await http.get("/v1/models")).json()["data"]}:
                return
            await asyncio.sleep(_POLL_S)


def _deployed(name: str, *more: str) -> Deployed:
    """`more` adapters are the customer's as well, and no alias of it names them."""
    return Deployed(tenant=name, alias=f"{name}/voice:prod", adapter_ids=(name, *more))


async def _record(admin: httpx.AsyncClient, adapter_id: str) -> AdapterRecord:
    """As far as placement, routing and tiers look at it."""
    shown = (await admin.get(f"/internal/adapters/{adapter_id}")).raise_for_status().json()
    return AdapterRecord(
        adapter_id=shown["adapter_id"], digest=shown["digest"], tenant_id=shown["tenant_id"], version=shown["version"],
        pool_id=shown["pool_id"], base_model_hash=shown["base_model_hash"], rank=shown["rank"], alpha=shown["alpha"],
        target_modules=tuple(shown["target_modules"]), size_bytes=shown["size_bytes"], store_key=shown["adapter_id"],
        status=shown["status"],
    )  # fmt: skip
