"""A fleet of its own with adapters on it, ready to be asked: each adapter is a customer's only one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from infra.adapters.random_adapter import write_random_adapter
from infra.local.temporary import TemporaryFleet, temporary_fleet
from loadtest.isolation_fleet import Operator
from loadtest.isolation_plan import Deployed
from shared.messages.desired import AdapterRecord

_POLL_S = 0.1
_DEADLINE_S = 90.0


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
            **dict(self.more),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Customer:
    alias: str
    key: str
    record: AdapterRecord


@dataclass(frozen=True, kw_only=True)
class Stage:
    fleet: TemporaryFleet
    shape: FleetShape
    customers: tuple[Customer, ...]

    @property
    def gateway_log(self) -> Path:
        return self.fleet.layout.logs / "gateway.log"

    def admin(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.fleet.connection.admin_key}"}
        return httpx.AsyncClient(
            base_url=self.fleet.connection.admin_url, headers=headers, timeout=60.0, trust_env=False
        )


def write_adapters(model: Path, folder: Path, count: int, rank: int) -> list[Path]:
    """The same model and rank, the same adapters."""
    return [write_random_adapter(model, folder / f"customer-{at:02d}", rank, seed=at) for at in range(count)]


@contextmanager
def staged(shape: FleetShape, home: Path, adapters: Sequence[Path]) -> Iterator[Stage]:
    """Start it, bring the adapters in, and stop it. Raises FleetDidNotStart."""
    with temporary_fleet(home, **shape.settings()) as fleet:
        bare = Stage(fleet=fleet, shape=shape, customers=())
        customers = asyncio.run(_customers(bare, adapters))
        stage = Stage(fleet=fleet, shape=shape, customers=tuple(customers))
        asyncio.run(settled(stage))
        yield stage


async def settled(stage: Stage) -> None:
    """Returns once every replica serves, and has every adapter on disk and as many in slots as there are."""
    wanted, slots = len(stage.customers), min(len(stage.customers), stage.shape.slots)
    async with stage.admin() as http, asyncio.timeout(_DEADLINE_S):
        for replica_id in stage.shape.replica_ids:
            while True:
                answer = await http.get(f"/internal/replicas/{replica_id}/state")
                state: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
                held = len(state.get("disk_adapters", ())) >= wanted and len(state.get("gpu_adapters", ())) >= slots
                if state.get("ready") and held:
                    break
                await asyncio.sleep(_POLL_S)


async def _customers(stage: Stage, folders: Sequence[Path]) -> list[Customer]:
    deployed = [_deployed(folder.name) for folder in folders]
    async with stage.admin() as http:
        operator = Operator(http)
        keys = [await operator.tenant_key(each.tenant) for each in deployed]
        _, base_hash = await operator.base()
        await operator.deploy(deployed, {folder.name: folder for folder in folders}, base_hash)
        shown = [(await http.get(f"/internal/adapters/{folder.name}")).raise_for_status().json() for folder in folders]
    await _until_known(stage, deployed[-1].alias, keys[-1])
    told = zip(deployed, keys, shown, strict=True)
    return [Customer(alias=each.alias, key=key, record=_record(found)) for each, key, found in told]


async def _until_known(stage: Stage, alias: str, key: str) -> None:
    """An alias that the registry has granted reaches the gateway a moment later."""
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=stage.fleet.connection.url, trust_env=False) as http:
        async with asyncio.timeout(_DEADLINE_S):
            while alias not in {each["id"] for each in (await http.get("/v1/models", headers=headers)).json()["data"]}:
                await asyncio.sleep(_POLL_S)


def _deployed(name: str) -> Deployed:
    return Deployed(tenant=name, alias=f"{name}/voice:prod", adapter_ids=(name,))


def _record(shown: dict[str, Any]) -> AdapterRecord:
    """As far as placement, routing and tiers look at it."""
    return AdapterRecord(
        adapter_id=shown["adapter_id"], digest=shown["digest"], tenant_id=shown["tenant_id"], version=shown["version"],
        pool_id=shown["pool_id"], base_model_hash=shown["base_model_hash"], rank=shown["rank"], alpha=shown["alpha"],
        target_modules=tuple(shown["target_modules"]), size_bytes=shown["size_bytes"], store_key=shown["adapter_id"],
        status=shown["status"],
    )  # fmt: skip
