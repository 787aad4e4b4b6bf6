"""A throw-away embedded fleet in a folder of its own, for tests and benchmarks: the real processes, on free ports."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from infra.local.connection import Connection, find_connection
from infra.local.layout import Layout
from infra.local.pools import parse_pool

_UP_TIMEOUT_S = 240.0
_PORTS = range(15_000, 32_000)
"""Below those that the kernel gives to outgoing connections: one of these could take a port before its server does."""
_DRAWS = 1000


class FleetDidNotStart(Exception):
    """The text is all that `lorafleet up` printed."""


class TemporaryFleet:
    """A running fleet: how to reach it, and its children for those who want to hurt it."""

    def __init__(self, layout: Layout, environ: Mapping[str, str], said: str) -> None:
        self.layout = layout
        self.environ = dict(environ)
        self.said = said
        self.connection: Connection = find_connection({"LORAFLEET_HOME": str(layout.home)}, layout.home)

    def pid(self, name: str) -> int:
        """Of "nats", "gateway", "registry", "replica-0" … as it runs now. Raises KeyError for an unknown name."""
        return self.pids()[name]

    def pids(self) -> dict[str, int]:
        """Of every child by its name."""
        pids: dict[str, int] = msgspec.json.decode(self.layout.pids.read_bytes())
        return pids

    def kill(self, name: str) -> int:
        """As the kernel's out-of-memory killer would: no goodbye. Returns the pid that is gone now."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def console(self, *words: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run one `lorafleet` command against this fleet."""
        return lorafleet(self.environ, *words, timeout_s=timeout_s)


@contextmanager
def temporary_fleet(home: Path, **settings: str) -> Iterator[TemporaryFleet]:
    """Start a fleet in `home`, yield it once it has answered a request, and stop it.

    `settings` are those of infra.local.settings in lower case (`slots="4"`). Raises FleetDidNotStart.
    """
    environ = environment(home, **settings)
    started = lorafleet(environ, "up", "--detach", timeout_s=_UP_TIMEOUT_S)
    try:
        if started.returncode != 0:
            raise FleetDidNotStart(started.stdout + started.stderr)
        yield TemporaryFleet(Layout(home), environ, started.stdout)
    finally:
        lorafleet(environ, "down", timeout_s=_UP_TIMEOUT_S)


def environment(home: Path, **settings: str) -> dict[str, str]:
    """The environment of a fleet in `home` on ports that are free now."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LORAFLEET_")}
    merged = [name for name in settings.get("merged", "").split(",") if name]
    pools = [int(settings.get("replicas", "2"))]
    pools += [parse_pool(text).replicas for text in settings.get("more_pools", "").split(",") if text]
    most = int(settings.get("autoscale", "0").rpartition(".")[2])
    replicas = sum(max(pool, most) for pool in pools) + len(merged)
    port, admin, nats = free_ports(3)
    chosen = {
        "home": str(home),
        "port": str(port),
        "admin_port": str(admin),
        "nats_port": str(nats),
        "probe_port": str(free_run(2 + replicas)),
        **settings,
    }
    return {**inherited, **{f"LORAFLEET_{name.upper()}": value for name, value in chosen.items()}}


def lorafleet(environ: Mapping[str, str], *words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "services.console", *words]
    return subprocess.run(argv, env=dict(environ), capture_output=True, text=True, timeout=timeout_s, check=False)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at the moment."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_run(1))
    return list(found)


def free_run(length: int) -> int:
    """The first of `length` neighbouring free ports, drawn: fleets that start at once hardly meet. Raises OSError."""
    for _ in range(_DRAWS):
        first = _PORTS.start + secrets.randbelow(len(_PORTS) - length)
        if all(_is_free(first + offset) for offset in range(length)):
            return first
    raise OSError(f"no run of {length} free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do that will bind it
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
