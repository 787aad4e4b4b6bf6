"""`python -m infra.docker.start NAME`: become one process of the fleet, with the secrets of the shared volume.

The nats container draws all passwords at its first start, before anyone else runs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from infra.docker.places import CREDENTIALS, INBOX, NATS_STORE, NATS_URL, SECRETS, VALKEY, VALKEY_PASSWORD
from infra.local import secret_file
from infra.nats.config import Ports, server_config
from infra.nats.credentials import load_or_create, write_private
from infra.nats.program import find_nats_server
from infra.valkey.config import server_config as valkey_config
from infra.valkey.config import url
from infra.valkey.password import load_or_create as load_or_draw
from infra.valkey.program import find_valkey_server
from shared.contracts.permissions import PROVISIONER

_WORDS = {"gateway": "GATEWAY", "registry": "REGISTRY", "placement": "PLACEMENT", "autoscaler": "AUTOSCALER"}
PREFIXES = {name: f"LORAFLEET_{word}_" for name, word in {**_WORDS, "replica_worker": "WORKER"}.items()}
"""By service, what its settings start with."""


def main(name: str) -> None:
    """Does not return: the process becomes the one that was asked for. Raises SystemExit for an unknown name."""
    if name == "nats":
        _become_nats()
    if name == "valkey":
        _become_valkey()
    if name == "provision":
        _become("infra.nats.provision", _login("LORAFLEET_PROVISION_", PROVISIONER))
    if name == "demo":
        _become("infra.docker.demo", {})
    if name not in PREFIXES:
        raise SystemExit(f"{name} is no process of the fleet: nats, valkey, provision, demo, {', '.join(PREFIXES)}")
    _become(f"services.{name}", _service_environment(name))


def _service_environment(name: str) -> dict[str, str]:
    prefix = PREFIXES[name]
    own = _login(prefix, name)
    if name == "gateway":
        own[f"{prefix}REDIS_URL"] = url(*VALKEY, load_or_draw(VALKEY_PASSWORD))
    if name == "registry":
        own[f"{prefix}ADMIN_KEY"] = secret_file.load_or_create(SECRETS).admin_key
    return own


def _login(prefix: str, user: str) -> dict[str, str]:
    passwords: dict[str, str] = msgspec.json.decode(CREDENTIALS.read_bytes())
    return {f"{prefix}NATS_URL": NATS_URL, f"{prefix}NATS_USER": user, f"{prefix}NATS_PASSWORD": passwords[user]}


def _become_nats() -> None:
    INBOX.mkdir(parents=True, exist_ok=True)
    secret_file.load_or_create(SECRETS)
    load_or_draw(VALKEY_PASSWORD)
    config = Path("/tmp/nats.conf")
    ports = Ports(client=4222, monitoring=8222, host="0.0.0.0")
    write_private(config, server_config(ports, NATS_STORE, load_or_create(CREDENTIALS)).encode())
    program = find_nats_server()
    os.execv(program, [program, "-c", str(config)])


def _become_valkey() -> None:
    config = Path("/tmp/valkey.conf")
    _, port = VALKEY
    write_private(config, valkey_config("0.0.0.0", port, load_or_draw(VALKEY_PASSWORD)).encode())
    program = find_valkey_server()
    os.execv(program, [program, str(config)])


def _become(module: str, environ: dict[str, str]) -> None:
    os.execve(sys.executable, [sys.executable, "-m", module], {**os.environ, **environ})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
