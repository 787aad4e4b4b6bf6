"""The bus of an embedded fleet: nats-server as a child, its config and passwords, its streams and buckets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from infra.local.fleet import BusLogin
from infra.local.layout import Layout
from infra.local.preflight import CannotStart
from infra.local.settings import LocalSettings
from infra.local.supervisor import Supervisor
from infra.nats.config import Ports, server_config
from infra.nats.credentials import load_or_create, write_private
from infra.nats.program import find_nats_server
from shared.bus.nats import BusOptions
from shared.bus.nats_provision import provision
from shared.bus.port import BusUnavailable
from shared.contracts.permissions import PROVISIONER


async def start_nats(supervisor: Supervisor, layout: Layout, settings: LocalSettings) -> Mapping[str, BusLogin]:
    """Start nats-server and bring its streams up to date; returns the login of every service.

    Raises CannotStart with the server's last words, or with what it lacks.
    """
    passwords = _passwords(layout.nats / "credentials.json")
    ports = Ports(client=settings.nats_port, monitoring=settings.nats_monitoring_port, host=settings.host)
    config = layout.nats / "nats.conf"
    write_private(config, server_config(ports, layout.nats / "store", passwords).encode())
    child = supervisor.start_program("nats", [_program(), "-c", str(config)])
    url = f"nats://{settings.host}:{settings.nats_port}"
    logins = {user: BusLogin(url=url, user=user, password=password) for user, password in passwords.items()}
    try:
        await provision(options(logins[PROVISIONER], "provision"))
    except BusUnavailable as error:
        raise CannotStart(f"nats-server does not serve ({error}): {child.last_words(1)}") from error
    return logins


def _passwords(path: Path) -> dict[str, str]:
    try:
        return load_or_create(path)
    except msgspec.MsgspecError as error:
        raise CannotStart(f"{path} is damaged ({error}): delete it, and the next start makes new ones.") from error


def _program() -> str:
    try:
        return find_nats_server()
    except FileNotFoundError as error:
        raise CannotStart(str(error)) from error


def options(login: BusLogin, client_name: str) -> BusOptions:
    return BusOptions(url=login.url, user=login.user, password=login.password, client_name=client_name)
