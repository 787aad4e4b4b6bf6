"""Credentials of an embedded fleet: generated at its first start, kept in one file that only its owner reads."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from infra.local.preflight import CannotStart
from infra.nats.credentials import write_private


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    admin_key: str
    demo_key: str = ""
    """The API key of the demo tenant, once the registry has made one."""


def load_or_create(path: Path) -> Secrets:
    """The secrets of this fleet; new ones if there are none. Raises CannotStart for a file that is none."""
    if path.exists():
        try:
            return msgspec.json.decode(path.read_bytes(), type=Secrets)
        except msgspec.MsgspecError as error:
            raise CannotStart(f"{path} is damaged ({error}): delete it, and the next start makes new keys.") from error
    made = Secrets(admin_key=f"lf-admin-{secrets.token_urlsafe(32)}")
    save(path, made)
    return made


def save(path: Path, value: Secrets) -> None:
    write_private(path, msgspec.json.encode(value))
