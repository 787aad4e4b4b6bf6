"""The limits' ledger of an embedded fleet: Valkey as a child, unless the operator has a Redis."""

from __future__ import annotations

import socket

from infra.local.layout import Layout
from infra.local.preflight import CannotStart
from infra.local.settings import LocalSettings
from infra.local.supervisor import Supervisor
from infra.nats.credentials import write_private
from infra.valkey.config import server_config, url
from infra.valkey.password import load_or_create
from infra.valkey.program import find_valkey_server

NAME = "valkey"


def start_valkey(supervisor: Supervisor, layout: Layout, settings: LocalSettings) -> str:
    """Where gateways find it. Returns at once: they do without until it listens, and whenever it is away.

    Raises CannotStart if there is no such program."""
    if settings.redis_url is not None:
        return settings.redis_url
    layout.valkey.mkdir(exist_ok=True)
    password, port = load_or_create(layout.valkey / "password"), _free_port(settings.host)
    config = layout.valkey / "valkey.conf"
    write_private(config, server_config(settings.host, port, password).encode())
    try:
        supervisor.start_program(NAME, [find_valkey_server(), str(config)], vital=False)
    except FileNotFoundError as error:
        raise CannotStart(str(error)) from error
    return url(settings.host, port, password)


def _free_port(host: str) -> int:
    """One that the system gives: nobody but the gateways has to know it."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
