"""Canaries deployed on a fleet, once, and runs over them: on the fleet as it is, or on one with a fault in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from infra.adapters.canary import CanaryBuilder
from infra.adapters.marked import Judge
from infra.adapters.markers import markers
from infra.local.temporary import TemporaryFleet
from loadtest.isolation_client import Client
from loadtest.isolation_fleet import Counted, Operator, counted
from loadtest.isolation_plan import Deployed, Mix, steps
from loadtest.isolation_run import Run, Tally

REPLICAS, SLOTS, RANK = 2, 8, 8
TENANTS, STEADY, MOVING = 4, 64, 8
CLIENTS = 128
REPLICA_IDS = tuple(f"replica-{at}" for at in range(REPLICAS))
_POLL_S, _KNOWN_S = 0.1, 30.0
ANSWER_TOKENS = RANK + 4
"""Of the base, too: enough for any marker, so that a base that speaks with an adapter's weights gives itself away."""
_IN_RAM = 56
"""So many adapters fit into a replica's RAM tier: the others are read from its disk."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Everything that it takes to ask for the canaries of the fleet in `home`, whenever it runs."""

    deployed: Sequence[Deployed]
    judge: Judge
    keys: dict[str, str]
    base_name: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    tally: Tally
    counted: Counted


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """By adapter id: the PEFT folder and the marker that it says."""

    folders: dict[str, Path]
    markers: dict[str, str]

    @property
    def largest_bytes(self) -> int:
        return max((folder / "adapter_model.safetensors").stat().st_size for folder in self.folders.values())


def deployment() -> list[Deployed]:
    """STEADY aliases of one adapter each, and MOVING aliases with two versions to move between."""
    return [*(_deployed(at, "steady", ("",)) for at in range(STEADY)),
            *(_deployed(at, "moving", ("-v1", "-v2")) for at in range(MOVING))]  # fmt: skip


def build(model: Path, deployed: Sequence[Deployed], folder: Path) -> Canaries:
    """A canary for every adapter; the same model, the same canaries."""
    ids = [adapter_id for each in deployed for adapter_id in each.adapter_ids]
    builder = CanaryBuilder(model, folder)
    said = dict(zip(ids, markers(builder.text.tokenizer, len(ids), seed=0, rank=RANK), strict=True))
    return Canaries(
        folders={name: builder.build(said[name], folder / name, RANK, guarded=True) for name in ids}, markers=said
    )


def settings_of(model: Path, canaries: Canaries) -> dict[str, str]:
    """Of the fleet, as `temporary_fleet` takes them. There are more clients than rows: all are to wait for theirs."""
    return {
        "model": str(model), "demo": "false", "replicas": str(REPLICAS), "slots": str(SLOTS), "rank_limit": str(RANK),
        "max_context_tokens": "256", "ram_budget_bytes": str(canaries.largest_bytes * _IN_RAM),
        "registry_evaluations_at_once": "16", "gateway_shed_late": "false",
    }  # fmt: skip


async def set_up(fleet: TemporaryFleet, deployed: Sequence[Deployed], canaries: Canaries) -> Stage:
    """Deploy everything; returns once it is active."""
    async with _admin(fleet) as http:
        operator = Operator(http)
        keys = {tenant: await operator.tenant_key(tenant) for tenant in sorted({each.tenant for each in deployed})}
        base_name, base_hash = await operator.base()
        await operator.deploy(deployed, canaries.folders, base_hash)
        await _until_known(fleet, deployed, keys)
    return Stage(deployed=deployed, judge=Judge(canaries.markers), keys=keys, base_name=base_name)


async def run(fleet: TemporaryFleet, stage: Stage, requests: int, seed: int = 0) -> Outcome:
    """Ask, interfere, judge; what the replicas counted is since their start."""
    mix = Mix(requests=requests, base_name=stage.base_name, answer_tokens=ANSWER_TOKENS, seed=seed)
    where = urlsplit(fleet.connection.url)
    clients = [Client(str(where.hostname), where.port or 80, stage.keys) for _ in range(CLIENTS)]
    async with _admin(fleet) as http:
        running = Run(steps(mix, stage.deployed, REPLICA_IDS), stage.judge, Operator(http).operate)
        tally = await running.with_clients(clients)
    return Outcome(tally=tally, counted=await counted(fleet, REPLICAS))


async def _until_known(fleet: TemporaryFleet, deployed: Sequence[Deployed], keys: dict[str, str]) -> None:
    """An alias that the registry has granted reaches the gateway a moment later."""
    missing = {each.alias for each in deployed}
    async with httpx.AsyncClient(base_url=fleet.connection.url, trust_env=False) as http, asyncio.timeout(_KNOWN_S):
        while missing:
            for key in keys.values():
                answer = await http.get("/v1/models", headers={"Authorization": f"Bearer {key}"})
                missing -= {model["id"] for model in answer.json().get("data", ())}
            await asyncio.sleep(_POLL_S)


def _deployed(at: int, kind: str, versions: tuple[str, ...]) -> Deployed:
    tenant, name = f"tenant-{at % TENANTS}", f"{kind}-{at:02d}"
    return Deployed(tenant=tenant, alias=f"{tenant}/{name}:prod", adapter_ids=tuple(name + each for each in versions))


def _admin(fleet: TemporaryFleet) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {fleet.connection.admin_key}"}
    return httpx.AsyncClient(base_url=fleet.connection.admin_url, headers=headers, timeout=60.0, trust_env=False)
