"""A fine-tuning pipeline as the fleet sees one: it leaves weights in the inbox and announces them on the bus."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from infra.local.temporary import TemporaryFleet
from shared.bus.nats import BusOptions, connect
from shared.contracts.catalog import ADAPTER_REGISTERED
from shared.messages.adapters import AdapterRegistered
from tests.support.waiting import eventually


class Pipeline:
    """Brings adapters in and asks the admin address what became of them."""

    def __init__(self, fleet: TemporaryFleet, admin: httpx.Client) -> None:
        self._fleet = fleet
        self.admin = admin
        self.base = admin.get("/internal/base-models").raise_for_status().json()["base_models"][0]

    def key(self, tenant_id: str, may_call_base: bool = True) -> str:
        """A new API key of a tenant that exists from then on."""
        self.admin.post("/internal/tenants", json={"tenant_id": tenant_id, "weight": 1.0}).raise_for_status()
        answer = self.admin.post("/internal/keys", json={"tenant_id": tenant_id, "may_call_base": may_call_base})
        return str(answer.raise_for_status().json()["api_key"])

    def message(self, folder: Path, adapter_id: str, alias: str | None = None, **changes: Any) -> AdapterRegistered:
        """What a pipeline says about a PEFT folder, copied into the inbox first."""
        copy = self._fleet.layout.inbox / adapter_id
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        config = json.loads((copy / "adapter_config.json").read_text())
        weights = copy / "adapter_model.safetensors"
        values: dict[str, Any] = {
            "adapter_id": adapter_id,
            "tenant_id": alias.partition("/")[0] if alias else "acme",
            "version": "1",
            "base_model_hash": self.base["base_model_hash"],
            "rank": config["r"],
            "alpha": float(config["lora_alpha"]),
            "target_modules": tuple(config["target_modules"]),
            "weights_uri": weights.as_uri(),
            "checksum": hashlib.sha256(weights.read_bytes()).hexdigest(),
            "alias": alias,
        }
        return AdapterRegistered(**{**values, **changes})

    def announce(self, message: AdapterRegistered) -> None:
        """By event, as the pipeline's own user on the bus."""
        asyncio.run(self._publish(message))

    def bring(self, folder: Path, adapter_id: str, alias: str | None = None) -> AdapterRegistered:
        """Announce an adapter and wait until it is active, and deployed if it is to be."""
        message = self.message(folder, adapter_id, alias)
        self.announce(message)
        self.wait_brought(message)
        return message

    def wait_brought(self, message: AdapterRegistered) -> None:
        adapter_id, alias = message.adapter_id, message.alias
        self.wait_status(adapter_id, "active")
        if alias is not None:
            path = f"/internal/adapters/{adapter_id}"
            eventually(lambda: alias in self.admin.get(path).json()["aliases"], f"{alias} to mean {adapter_id}")

    def wait_status(self, adapter_id: str, status: str) -> dict[str, Any]:
        """The record once it has this status; fails the test when another final one or the deadline comes first."""

        def settled() -> dict[str, Any] | None:
            answer = self.admin.get(f"/internal/adapters/{adapter_id}")
            record: dict[str, Any] = answer.json() if answer.status_code == 200 else {"status": ""}
            if record["status"] != status and record["status"] in ("active", "rejected", "failed", "retired"):
                pytest.fail(f"{adapter_id} is {record}")
            return record if record["status"] == status else None

        return eventually(settled, f"{adapter_id} to be {status}")

    def set_alias(self, alias: str, adapter_id: str) -> None:
        self.admin.put(f"/internal/aliases/{alias}", json={"adapter_id": adapter_id}).raise_for_status()

    def replica(self, replica_id: str) -> dict[str, Any] | None:
        """The fleet view's summary of one replica, or None."""
        view = self.admin.get("/internal/fleet").raise_for_status().json()
        return next((one for one in view["replicas"] if one["replica_id"] == replica_id), None)

    async def _publish(self, message: AdapterRegistered) -> None:
        parts = urlsplit(self._fleet.connection.nats_url)
        options = BusOptions(
            url=f"nats://{parts.hostname}:{parts.port}",
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            client_name="test-pipeline",
        )
        bus = await connect(options)
        try:
            await bus.publish(ADAPTER_REGISTERED, message)
        finally:
            await bus.close()
