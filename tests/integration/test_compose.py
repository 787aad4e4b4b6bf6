"""docker-compose.yml against the real Compose: it is well formed, and every setting in it exists."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from infra.docker.demo import Settings as DemoSettings
from infra.docker.start import PREFIXES
from services.autoscaler.settings import Settings as AutoscalerSettings
from services.gateway.settings import Settings as GatewaySettings
from services.placement.settings import Settings as PlacementSettings
from services.registry.settings import Settings as RegistrySettings
from services.replica_worker.settings import Settings as WorkerSettings
from shared.runtime.service import STOP_DEADLINE_S
from shared.runtime.settings import SettingsError, read

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = Path(sys.executable).parent / "docker-compose"
KINDS = {
    "gateway": GatewaySettings,
    "registry": RegistrySettings,
    "placement": PlacementSettings,
    "autoscaler": AutoscalerSettings,
    "replica_worker": WorkerSettings,
}
SECRETS = ("NATS_URL", "NATS_USER", "NATS_PASSWORD")


def compose(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [COMPOSE, "-f", ROOT / "docker-compose.yml", *words]
    environ = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


def resolved(**variables: str) -> dict[str, Any]:
    """The containers as Compose understands the file, by name."""
    services: dict[str, Any] = json.loads(compose("config", "--format", "json", **variables).stdout)["services"]
    return services


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return resolved()


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "infra" / "docker" / "Dockerfile").read_text()


def test_compose_accepts_the_file() -> None:
    checked = compose("config", "-q")
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr == ""


def settings_of(service: dict[str, Any]) -> object:
    """The settings a container would read, with stand-ins for what its start adds from the shared volume."""
    name = service["command"][0]
    if name == "demo":
        return read(DemoSettings, "LORAFLEET_DEMO_", service["environment"])
    prefix = PREFIXES[name]
    added = {prefix + secret: "nats://nats:4222" for secret in SECRETS}
    if name == "registry":
        added[f"{prefix}ADMIN_KEY"] = "a stand-in of enough length"
    return read(KINDS[name], prefix, {**(service.get("environment") or {}), **added})


def test_every_container_gets_settings_that_its_process_accepts(services: dict[str, Any]) -> None:
    started = {service["command"][0]: settings_of(service) for service in services.values() if has_settings(service)}
    assert set(started) == {*KINDS, "demo"}


def test_a_misspelt_setting_in_the_file_would_be_seen(services: dict[str, Any]) -> None:
    gateway = services["gateway"]
    gateway = {**gateway, "environment": {**gateway["environment"], "LORAFLEET_GATEWAY_PROT": "1"}}
    with pytest.raises(SettingsError, match="LORAFLEET_GATEWAY_PROT"):
        settings_of(gateway)


def test_a_replica_keeps_its_compiled_kernels_in_a_volume(services: dict[str, Any]) -> None:
    for name in ("replica-0", "replica-1"):
        kept = services[name]["environment"]["NUMBA_CACHE_DIR"]
        assert any(kept.startswith(f"{volume['target']}/") for volume in services[name]["volumes"])


def has_settings(service: dict[str, Any]) -> bool:
    return service["command"][0] not in ("nats", "valkey", "provision")


def test_no_secret_stands_in_the_file(services: dict[str, Any]) -> None:
    names = [name for service in services.values() for name in service.get("environment") or {}]
    assert not [name for name in names if "PASSWORD" in name or "KEY" in name]


def test_one_container_builds_the_image_and_nobody_pulls_it(services: dict[str, Any]) -> None:
    assert [name for name, service in services.items() if "build" in service] == ["nats"]
    assert {service["image"] for service in services.values()} == {"lorafleet:local"}
    assert {service["pull_policy"] for service in services.values()} == {"never"}


def test_demo_env_names_the_ports_that_the_host_publishes() -> None:
    services = resolved(LORAFLEET_PORT="9000", LORAFLEET_ADMIN_PORT="9001")
    published = [services[name]["ports"][0] for name in ("gateway", "registry")]
    addresses = [(port["host_ip"], port["published"]) for port in published]
    assert addresses == [("127.0.0.1", "9000"), ("127.0.0.1", "9001")]
    demo = settings_of(services["demo"])
    assert isinstance(demo, DemoSettings)
    assert (demo.port, demo.admin_port) == (9000, 9001)


def test_docker_waits_longer_than_any_process_drains(services: dict[str, Any]) -> None:
    replica, gateway = settings_of(services["replica-0"]), settings_of(services["gateway"])
    assert isinstance(replica, WorkerSettings)
    assert isinstance(gateway, GatewaySettings)
    longest_s = max(replica.drain_deadline_s + 10.0, gateway.drain_s, STOP_DEADLINE_S)
    assert {service["stop_grace_period"] for service in services.values()} == {"35s"}
    assert longest_s < 35.0


def test_the_demo_ends_and_is_not_tried_for_ever(services: dict[str, Any]) -> None:
    assert services["demo"]["restart"] == "on-failure:5"
    assert services["provision"]["restart"] == "on-failure"
    running = {name: service["restart"] for name, service in services.items() if name not in ("demo", "provision")}
    assert set(running.values()) == {"unless-stopped"}


def test_every_mount_point_belongs_to_the_user_of_the_image(services: dict[str, Any], dockerfile: str) -> None:
    """A volume over a folder that the image lacks belongs to root, and its process could not write there."""
    targets = {volume["target"] for service in services.values() for volume in service["volumes"]}
    made = re.search(r"cd /var/lib && mkdir -p (.*) \\\n +&& chown -R lorafleet lorafleet\n", dockerfile)
    assert made
    assert targets == {f"/var/lib/{folder}" for folder in made[1].split()}
    assert "\nUSER lorafleet\n" in dockerfile


def test_a_build_sends_the_code_and_neither_the_state_nor_the_secrets_of_a_fleet(dockerfile: str) -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]

    def left_out(path: str) -> bool:
        return any(fnmatch(path.partition("/")[0], pattern) for pattern in ignored)

    copied = [word for line in re.findall(r"^COPY (.*)$", dockerfile, re.M) for word in line.split()[:-1]]
    assert {"infra", "services", "shared", "loadtest"} <= set(copied)
    assert [path for path in copied if not (ROOT / path).exists() or left_out(path)] == []
    assert all(left_out(path) for path in (".git", ".venv", ".lorafleet/secrets.json", "reports", "tests"))
