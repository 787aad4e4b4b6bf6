"""`lorafleet adapters …`: register a PEFT folder, list, show, pin, retire."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from services.console.commands.bases import chosen_base
from services.console.commands.output import Output
from services.console.core.outcome import REFUSED, UNREACHABLE, USAGE
from services.console.core.peft_folder import PeftConfig, UnclearConfig, peft_config
from services.console.core.progress import Pace, upload_line
from services.console.io.admin import Admin, CommandFailed
from services.console.io.progress import ProgressLine
from shared.pipeline.folder import Folder, Identity, announcement, read_folder
from shared.pipeline.outcome import UnclearFolder

_COLUMNS = ("adapter_id", "tenant_id", "version", "status", "rank", "size_bytes", "pool_id", "pinned")
_SETTLED = ("active", "rejected", "failed", "retired")
_POLL_S = 0.2
_PATIENCE_S = 60.0
"""With a registry that has answered before: it starts again."""


def register(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """Upload the weights of a folder and register them; with --wait, until they are active."""
    folder = describe(_only_folder(arguments.folder))
    identity = Identity(
        tenant_id=arguments.tenant,
        base_model_hash=chosen_base(admin, arguments.base),
        adapter_id=arguments.id,
        version=arguments.version,
        alias=arguments.alias,
        predecessor_id=arguments.predecessor,
        dataset_uri=arguments.dataset,
        evaluated_by=arguments.evaluated_by,
    )
    answer = announce(admin, folder, identity)
    if arguments.wait:
        answer = settled(admin, answer["adapter_id"], arguments.timeout)
    out.record(answer, f"{answer['adapter_id']} is {answer['status']}")


def describe(path: Path) -> Folder:
    """Raises CommandFailed for a folder that PEFT has not written."""
    try:
        return read_folder(path)
    except UnclearFolder as error:
        raise CommandFailed(str(error), USAGE) from error


def announce(admin: Admin, folder: Folder, identity: Identity) -> dict[str, Any]:
    """Upload and register; the answer says how far it has come."""
    uri = _sent(admin, folder)
    announced = announcement(folder, identity, uri)
    return _patiently(lambda: admin.post("/internal/adapters", announced))


def _sent(admin: Admin, folder: Folder) -> str:
    """The `weights_uri` of the weights, which are all there then."""
    first: int | None = None
    with ProgressLine(sys.stderr, shutil.get_terminal_size().columns) as line:

        def on_sent(done: int, total: int) -> None:
            nonlocal first
            first = done if first is None else first
            pace = Pace(done=done, total=total, before=first, elapsed_s=line.elapsed_s)
            line.show(lambda: upload_line(folder.path.name, pace))

        return admin.upload(folder.weights, folder.checksum, on_sent)


def listing(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    asked = {"tenant_id": arguments.tenant, "status": arguments.status}
    params = {name: value for name, value in asked.items() if value}
    out.rows(admin.every("/internal/adapters", "adapters", **params), _COLUMNS)


def show(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.get(_path(arguments.adapter_id))
    out.record(answer, json.dumps(answer, indent=2))


def pin(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.patch(_path(arguments.adapter_id), {"pinned": True})
    out.record(answer, f"{arguments.adapter_id} is pinned: every owner keeps it in a slot")


def unpin(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.patch(_path(arguments.adapter_id), {"pinned": False})
    out.record(answer, f"{arguments.adapter_id} is not pinned: its traffic decides where it is held")


def retire(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    answer = admin.post(f"{_path(arguments.adapter_id)}/retire")
    out.record(answer, f"{arguments.adapter_id} is retired")


def _path(adapter_id: str) -> str:
    return f"/internal/adapters/{quote(adapter_id, safe='')}"


def _only_folder(folders: list[str]) -> Path:
    if len(folders) > 1:
        raise CommandFailed(f"{len(folders)} folders were given: register one, or all with register-all.", USAGE)
    return Path(folders[0])


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


def settled(admin: Admin, adapter_id: str, timeout_s: float, alias: str | None = None) -> dict[str, Any]:
    """The adapter once it is active, and the alias means it. Raises CommandFailed when it ends otherwise, or takes
    longer."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = _patiently(lambda: admin.get(_path(adapter_id)))
        status = answer["status"]
        if status == "active" and (alias is None or alias in answer["aliases"]):
            return answer
        if status != "active" and status in _SETTLED:
            raise CommandFailed(f"{adapter_id} is {status}: {answer.get('reason', '')}", REFUSED, answer)
        if time.monotonic() > deadline_s:
            still = f"active, but {alias} does not mean it," if status == "active" else status
            raise CommandFailed(f"{adapter_id} is still {still} after {timeout_s:g} s.", REFUSED, answer)
        time.sleep(_POLL_S)


def _patiently(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What may be asked twice is, until somebody answers. Raises CommandFailed, also if nobody did for so long."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except CommandFailed as error:
            if error.code != UNREACHABLE or time.monotonic() > deadline_s:
                raise
        time.sleep(_POLL_S)
