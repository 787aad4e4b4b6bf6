"""The passwords of the bus: drawn at the first start, kept in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from shared.contracts.channel import Service
from shared.contracts.permissions import PROVISIONER

USERS = (PROVISIONER, *(service.value for service in Service))


def load_or_create(path: Path) -> dict[str, str]:
    """Password by user. Users that are new since the file was written get theirs now."""
    known = msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}
    missing = {user: secrets.token_urlsafe(24) for user in USERS if user not in known}
    if missing:
        known |= missing
        write_private(path, msgspec.json.encode(known))
    return known


def write_private(path: Path, content: bytes) -> None:
    """The whole file or none of it, readable by its owner alone from the first byte."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)
