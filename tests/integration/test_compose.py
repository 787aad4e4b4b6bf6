"""docker-compose.yml against the real Compose: it is well formed, and every setting in it exists."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.docker.demo import Settings as DemoSettings
from infra.docker.start import PREFIXES
from services.autoscaler.settings import Settings as AutoscalerSettings
from services.gateway.settings import GatewaySettings
from services.placement.settings import Settings as PlacementSettings
from services.registry.settings import Settings as RegistrySettings
from services.replica_worker.settings import Settings as WorkerSettings
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


def compose(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMPOSE, "-f", ROOT / "docker-compose.yml", *words], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    services: dict[str, Any] = json.loads(compose("config", "--format", "json").stdout)["services"]
    return services


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


def has_settings(service: dict[str, Any]) -> bool:
    return service["command"][0] not in ("nats", "provision")


def test_no_secret_stands_in_the_file(services: dict[str, Any]) -> None:
    names = [name for service in services.values() for name in service.get("environment") or {}]
    assert not [name for name in names if "PASSWORD" in name or "KEY" in name]
