"""`lorafleet adapters …`: register a PEFT folder, list, show, retire."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from services.console.commands.bases import default_base
from services.console.commands.output import Output
from services.console.core.outcome import REFUSED, USAGE
from services.console.core.peft_folder import Identity, PeftConfig, UnclearConfig, peft_config, registration
from services.console.io.admin import Admin, CommandFailed

_COLUMNS = ("adapter_id", "tenant_id", "version", "status", "rank", "size_bytes", "pool_id")
_SETTLED = ("active", "rejected", "failed", "retired")
_POLL_S = 0.2


def register(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """Upload the weights of a folder and register them; with --wait, until they are active."""
    folder = _only_folder(arguments.folder)
    described = describe(folder)
    identity = Identity(
        tenant_id=arguments.tenant,
        adapter_id=arguments.id or f"{arguments.tenant}-{folder.resolve().name}-{described.checksum[:8]}",
        version=arguments.version or described.checksum[:8],
        base_model_hash=arguments.base or default_base(admin),
    )
    answer = announce(admin, described, identity, arguments.alias)
    if arguments.wait:
        answer = settled(admin, identity.adapter_id, arguments.timeout, arguments.alias)
    out.record(answer, f"{answer['adapter_id']} is {answer['status']}")


@dataclass(frozen=True, kw_only=True)
class Described:
    """A PEFT folder: what its config says, and its weights with their SHA-256."""

    config: PeftConfig
    weights: Path
    checksum: str


def describe(folder: Path) -> Described:
    """Raises CommandFailed for a folder that PEFT has not written."""
    weights = folder / "adapter_model.safetensors"
    return Described(config=read_config(folder, weights), weights=weights, checksum=_sha256(weights))


def announce(admin: Admin, described: Described, identity: Identity, alias: str | None) -> dict[str, Any]:
    """Upload and register; the answer says how far it has come."""
    uri = admin.upload(described.weights, described.checksum)
    body = registration(described.config, identity, uri, described.checksum, alias)
    answer: dict[str, Any] = admin.post("/internal/adapters", body)
    return answer


def listing(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    asked = {"tenant_id": arguments.tenant, "status": arguments.status}
    params = {name: value for name, value in asked.items() if value}
    out.rows(admin.every("/internal/adapters", "adapters", **params), _COLUMNS)


def show(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.get(_path(arguments.adapter_id))
    out.record(answer, json.dumps(answer, indent=2))


def retire(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.post(f"{_path(arguments.adapter_id)}/retire")
    out.record(answer, f"{arguments.adapter_id} is retired")


def _path(adapter_id: str) -> str:
    return f"/internal/adapters/{quote(adapter_id, safe='')}"


def _only_folder(folders: list[str]) -> Path:
    if len(folders) > 1:
        raise CommandFailed(f"{len(folders)} folders were given: register one folder at a time.", USAGE)
    folder = Path(folders[0])
    if folder.is_file():
        raise CommandFailed(f"{folder} is a file: give the folder around it.", USAGE)
    return folder


def read_config(folder: Path, weights: Path) -> PeftConfig:
    """Of a PEFT folder. Raises CommandFailed with what is missing or unclear."""
    config = folder / "adapter_config.json"
    for path in (config, weights):
        if not path.is_file():
            raise CommandFailed(f"{path} is missing: give a folder as PEFT's save_pretrained leaves it.", USAGE)
    try:
        return peft_config(config.read_bytes())
    except (UnclearConfig, OSError) as error:
        raise CommandFailed(str(error), USAGE) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def settled(admin: Admin, adapter_id: str, timeout_s: float, alias: str | None = None) -> dict[str, Any]:
    """The adapter once it is active, and the alias means it. Raises CommandFailed when it ends otherwise, or takes
    longer."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer: dict[str, Any] = admin.get(_path(adapter_id))
        status = answer["status"]
        if status == "active" and (alias is None or alias in answer["aliases"]):
            return answer
        if status != "active" and status in _SETTLED:
            raise CommandFailed(f"{adapter_id} is {status}: {answer.get('reason', '')}", REFUSED, answer)
        if time.monotonic() > deadline_s:
            still = f"active, but {alias} does not mean it," if status == "active" else status
            raise CommandFailed(f"{adapter_id} is still {still} after {timeout_s:g} s.", REFUSED, answer)
        time.sleep(_POLL_S)
