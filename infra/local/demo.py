"""The demo customer of an embedded fleet, brought in the way any customer is: tenant and key by the admin
address, weights left in the inbox, and an `adapter.registered` event on the bus."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from infra.local.preflight import CannotStart
from shared.bus.port import Bus
from shared.contracts.catalog import ADAPTER_REGISTERED
from shared.messages.adapters import AdapterRegistered
from shared.messages.desired import BaseModelRecord
from shared.messages.identity import is_digest

TENANT = "acme"
DEMO_FOLDER = Path(__file__).resolve().parents[1] / "adapters" / "demo"
_POLL_S = 0.1

Say = Callable[[str], None]


class DemoFleet:
    """What the demo asks of a running fleet. Every method raises CannotStart with the fleet's own sentence."""

    def __init__(self, admin: httpx.AsyncClient, door: httpx.AsyncClient, say: Say) -> None:
        self._admin = admin
        self._door = door
        self._say = say

    async def prepare(self, bases: Sequence[BaseModelRecord], key: str) -> str:
        """Register base models and tenant; returns the demo key, a new one if `key` is empty."""
        for base in bases:
            await self._offer(base)
        await self._call("POST", "/internal/tenants", {"tenant_id": TENANT, "weight": 1.0})
        if key:
            return key
        made = await self._call("POST", "/internal/keys", {"tenant_id": TENANT, "may_call_base": True})
        return str(made["api_key"])

    async def _offer(self, base: BaseModelRecord) -> None:
        """A fleet keeps the rank classes that its adapters were registered under."""
        path, classes = f"/internal/base-models/{base.base_model_hash}", base.rank_classes
        answer = await self._ask("PUT", path, msgspec.to_builtins(base))
        if answer.status_code == 409:
            raise CannotStart(
                f"{base.name} is offered with {_ranks(classes)}, but this fleet knows it otherwise: set "
                f"LORAFLEET_RANK_LIMIT and LORAFLEET_MORE_POOLS as they were, or LORAFLEET_HOME to a new folder. "
                f"({answer.json()['error']['message']})"
            )
        _body(answer)

    async def bring_in(self, bus: Bus, folders: Sequence[Path], inbox: Path, base_hash: str) -> dict[str, str]:
        """Announce every folder; returns alias to adapter id. They are checked from now on, not active yet."""
        messages = [await self.announce(bus, folder, inbox, base_hash) for folder in folders]
        return {str(message.alias): message.adapter_id for message in messages}

    async def announce(self, bus: Bus, folder: Path, inbox: Path, base_model_hash: str) -> AdapterRegistered:
        """Leave one PEFT folder in the inbox and tell the registry about it, as a pipeline would."""
        copy = inbox / folder.name
        await asyncio.to_thread(shutil.copytree, folder, copy, dirs_exist_ok=True)
        message = announcement(copy, base_model_hash)
        await bus.publish(ADAPTER_REGISTERED, message)
        return message

    async def status(self, adapter_id: str) -> dict[str, Any] | None:
        """The registry's record, or None while it has none."""
        answer = await self._ask("GET", f"/internal/adapters/{adapter_id}")
        return None if answer.status_code == 404 else _body(answer)

    async def wait_active(self, adapter_id: str, timeout_s: float) -> bool:
        """Whether it is active once it is settled; not if an operator has retired it since."""
        seen = ""
        async with _deadline(timeout_s, lambda: f"Adapter {adapter_id} is still {seen or 'unknown'}"):
            while seen not in ("active", "retired"):
                record = await self.status(adapter_id)
                if record and record["status"] != seen:
                    seen = str(record["status"])
                    self._say(f"adapter {adapter_id}: {seen}")
                if record and seen in ("rejected", "failed"):
                    raise CannotStart(
                        f"Demo adapter {adapter_id} is {seen} ({record['reason']}): "
                        "set LORAFLEET_DEMO=false to start without the demo."
                    )
                await asyncio.sleep(_POLL_S)
        return seen == "active"

    async def wait_answer(self, model: str, key: str, timeout_s: float) -> str:
        """Ask until one request has really been answered; returns its text."""
        said = "nothing"
        messages = [{"role": "user", "content": "Say hello."}]
        body = {"model": model, "messages": messages, "max_tokens": 8, "temperature": 0}
        headers = {"Authorization": f"Bearer {key}"}
        async with _deadline(timeout_s, lambda: f"{model} does not answer (last: {said})"):
            while True:
                try:
                    answer = await self._door.post("/v1/chat/completions", json=body, headers=headers)
                except httpx.HTTPError as error:
                    said = f"{type(error).__name__} {error}".strip()
                else:
                    if answer.status_code == 200:
                        return str(answer.json()["choices"][0]["message"]["content"])
                    said = f"{answer.status_code} {answer.text[:200]}"
                await asyncio.sleep(_POLL_S)

    async def tell_awaited(self, merged: Sequence[str]) -> None:
        """Say which of the adapters that get a replica each are not registered. Digests are not looked up."""
        for at, name in enumerate(merged):
            if not is_digest(name) and await self.status(name) is None:
                self._say(f"merged-{at} waits for an adapter {name}, which is not registered yet")

    async def _call(self, method: str, path: str, body: object) -> Any:
        return _body(await self._ask(method, path, body))

    async def _ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        try:
            return await self._admin.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise CannotStart(f"The registry does not answer {path} ({type(error).__name__} {error}).") from error


def _ranks(classes: Sequence[int]) -> str:
    return f"rank {' and '.join(str(rank) for rank in classes)}"


def announcement(folder: Path, base_model_hash: str) -> AdapterRegistered:
    """What a pipeline says about a PEFT folder: its own config, the checksum, and the alias to deploy."""
    config = json.loads((folder / "adapter_config.json").read_text())
    weights, targets = folder / "adapter_model.safetensors", config["target_modules"]
    checksum = hashlib.sha256(weights.read_bytes()).hexdigest()
    return AdapterRegistered(
        adapter_id=f"{TENANT}-{folder.name}-{checksum[:8]}",
        tenant_id=TENANT,
        version=checksum[:8],
        base_model_hash=base_model_hash,
        rank=config["r"],
        alpha=float(config["lora_alpha"]),
        target_modules=targets if isinstance(targets, str) else tuple(sorted(targets)),
        weights_uri=weights.as_uri(),
        checksum=checksum,
        use_rslora=bool(config.get("use_rslora")),
        rank_pattern=config.get("rank_pattern") or {},
        alpha_pattern=config.get("alpha_pattern") or {},
        alias=f"{TENANT}/{folder.name}:prod",
    )


def demo_folders(base_model_hash: str) -> list[Path]:
    """The demo's PEFT folders, or none if they were trained on another base model than this."""
    trained_on = (DEMO_FOLDER / "base_model_hash").read_text().strip()
    folders = sorted(path.parent for path in DEMO_FOLDER.glob("*/adapter_config.json"))
    return folders if trained_on == base_model_hash else []


def _body(answer: httpx.Response) -> Any:
    if answer.status_code >= 400:
        raise CannotStart(f"{answer.request.url.path} answered {answer.status_code}: {answer.text[:300]}")
    return answer.json() if answer.content else {}


@asynccontextmanager
async def _deadline(seconds: float, what: Callable[[], str]) -> AsyncIterator[None]:
    """Turns a timeout into the sentence that says how far it came."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise CannotStart(f"{what()} after {seconds:.0f} s; see the logs of the fleet.") from error
