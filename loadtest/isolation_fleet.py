"""What an isolation run needs of a fleet: canaries deployed on it, an operator, and what its replicas count."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from infra.local.temporary import TemporaryFleet
from loadtest.isolation_plan import Deployed, Operation

_AT_ONCE = 8
_POLL_S = 0.1
_REPORT_S = 1.1
"""A little more than between two reports of a replica, with which its counters move."""
_ACTIVE_DEADLINE_S = 120.0
_WORKER = "lorafleet_replica_worker_"
_BUCKET = re.compile(rf'^{_WORKER}step_distinct_adapters_bucket{{le="([\d.]+)"}} ([\d.]+)$', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What replicas have counted since they started. `unproven` loads, replica by replica, were refused by the proof of
    effect; `steps_of` [distinct adapters]: engine steps with so many."""

    loads: int = 0
    evictions: int = 0
    unproven: Sequence[int] = ()
    steps_of: Mapping[int, int]

    def mean_distinct(self) -> float:
        """Over the steps in which any adapter took part."""
        mixed = {distinct: steps for distinct, steps in self.steps_of.items() if distinct}
        return sum(distinct * steps for distinct, steps in mixed.items()) / max(1, sum(mixed.values()))

    def steps_with(self, least: int) -> int:
        """So many different adapters, or more."""
        return sum(steps for distinct, steps in self.steps_of.items() if distinct >= least)

    def most_distinct(self) -> int:
        return max((distinct for distinct, steps in self.steps_of.items() if steps), default=0)


class Operator:
    """The fleet's admin address."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def tenant_key(self, tenant: str) -> str:
        """A new key of a tenant that exists from then on; it may call the base, too."""
        await self._post("tenants", {"tenant_id": tenant})
        answer = await self._post("keys", {"tenant_id": tenant, "may_call_base": True})
        return str(answer["api_key"])

    async def base(self) -> tuple[str, str]:
        """Name and hash of the only base model."""
        answer = (await self._http.get("/internal/base-models")).raise_for_status().json()
        [only] = answer["base_models"]
        return only["name"], only["base_model_hash"]

    async def deploy(self, deployed: Sequence[Deployed], folders: Mapping[str, Path], base_hash: str) -> None:
        """Register every adapter (`folders` [adapter id]) and its alias; returns once all are active and deployed."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def bring(each: Deployed, adapter_id: str) -> None:
            async with gate:
                alias = each.alias if adapter_id == each.adapter_ids[0] else None
                await self._register(folders[adapter_id], _named(adapter_id, each.tenant, base_hash, alias))

        await asyncio.gather(*(bring(each, adapter_id) for each in deployed for adapter_id in each.adapter_ids))
        async with asyncio.timeout(_ACTIVE_DEADLINE_S):
            for each in deployed:
                for adapter_id in each.adapter_ids:
                    await self._active(adapter_id, is_deployed=adapter_id == each.adapter_ids[0])

    async def operate(self, operation: Operation) -> bool:
        """Whether it was done. Refusals are part of the game: an adapter in use is not unloaded."""
        if operation.kind == "move":
            path = f"/internal/aliases/{operation.subject}"
            answer = await self._http.put(path, json={"adapter_id": operation.target})
        else:
            path = f"/internal/replicas/{operation.target}/adapters/{operation.subject}/{operation.kind}"
            answer = await self._http.post(path, json={})
        return answer.is_success

    async def _register(self, folder: Path, named: dict[str, Any]) -> None:
        weights = (folder / "adapter_model.safetensors").read_bytes()
        config = json.loads((folder / "adapter_config.json").read_text())
        checksum = hashlib.sha256(weights).hexdigest()
        sent = await self._http.put(f"/internal/uploads/{checksum}", content=weights)
        described = {
            "rank": config["r"],
            "alpha": config["lora_alpha"],
            "target_modules": config["target_modules"],
            "weights_uri": sent.raise_for_status().json()["weights_uri"],
            "checksum": checksum,
        }
        await self._post("adapters", {**named, **described})

    async def _active(self, adapter_id: str, *, is_deployed: bool) -> None:
        while True:
            answer = (await self._http.get(f"/internal/adapters/{adapter_id}")).raise_for_status().json()
            if answer["status"] == "active" and (answer["aliases"] or not is_deployed):
                return
            if answer["status"] in ("rejected", "failed", "retired"):
                raise RuntimeError(f"{adapter_id} is {answer['status']}: {answer.get('reason')}")
            await asyncio.sleep(_POLL_S)

    async def _post(self, path: str, body: object) -> dict[str, Any]:
        answer: dict[str, Any] = (await self._http.post(f"/internal/{path}", json=body)).raise_for_status().json()
        return answer


def _named(adapter_id: str, tenant: str, base_hash: str, alias: str | None) -> dict[str, Any]:
    named = {"adapter_id": adapter_id, "tenant_id": tenant, "version": "1", "base_model_hash": base_hash}
    return named if alias is None else {**named, "alias": alias}


async def counted(fleet: TemporaryFleet, replicas: int) -> Counted:
    """Added up over the fleet's replicas, once they have told of their last second."""
    await asyncio.sleep(_REPORT_S)
    first = int(fleet.environ["LORAFLEET_PROBE_PORT"]) + 2
    async with httpx.AsyncClient(trust_env=False) as http:
        shown = [(await http.get(f"http://127.0.0.1:{first + at}/metrics")).text for at in range(replicas)]
    return told_by(shown)


def told_by(shown: Sequence[str]) -> Counted:
    """From the replicas' metrics as they show them."""
    return Counted(
        loads=sum(_value(text, "slot_loads_total") for text in shown),
        evictions=sum(_value(text, "slot_evictions_total") for text in shown),
        unproven=[_value(text, 'load_proofs_total{outcome="refused"}') for text in shown],
        steps_of=_added(_steps_of(text) for text in shown),
    )


def _value(text: str, series: str) -> int:
    found = re.search(rf"^{_WORKER}{re.escape(series)} ([\d.e+]+)$", text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def _steps_of(text: str) -> dict[int, int]:
    """The histogram's buckets are cumulative, and as wide as one up to 8 adapters."""
    buckets = [(int(float(bound)), int(float(count))) for bound, count in _BUCKET.findall(text)]
    before = [0, *(count for _, count in buckets)]
    return {bound: count - less for (bound, count), less in zip(buckets, before, strict=False)}


def _added(some: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for each in some:
        for distinct, steps in each.items():
            total[distinct] = total.get(distinct, 0) + steps
    return total
