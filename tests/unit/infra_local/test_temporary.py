from __future__ import annotations

import socket
from pathlib import Path

import pytest

from infra.local import temporary
from infra.local.temporary import environment, free_ports, free_run


def test_ports_of_a_fleet_are_none_that_an_outgoing_connection_could_take(tmp_path: Path) -> None:
    """Such a connection came between the draw and the start now and then, and the fleet did not start."""
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    environ = environment(tmp_path)
    ports = [int(environ[f"LORAFLEET_{name}"]) for name in ("PORT", "ADMIN_PORT", "NATS_PORT", "PROBE_PORT")]
    assert len(set(ports)) == 4
    assert max(ports) + 4 < min(first_of_kernel, 32_768)
    assert len(set(free_ports(5))) == 5


def test_a_port_that_somebody_has_is_in_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(temporary, "_PORTS", range(taken, taken + 2))
        with pytest.raises(OSError, match="no run of 1 free ports"):
            free_run(1)
