"""Brings the demo customer into a fleet of containers, as `make up` does; demo.env goes to the shared volume."""

from __future__ import annotations

import asyncio
import os
import sys

import httpx
import msgspec

from infra.docker.places import CREDENTIALS, FLEET, INBOX, MODEL, NATS_URL, SECRETS
from infra.local import secret_file
from infra.local.banner import demo_env
from infra.local.demo import DemoFleet, demo_folders
from infra.local.fleet import BusLogin
from infra.local.nats import options
from infra.local.preflight import CannotStart
from infra.local.settings import LocalSettings
from infra.nats.credentials import write_private
from shared.base_model import describe
from shared.bus.nats import connect
from shared.runtime.settings import read

_ACTIVE_TIMEOUT_S = 300.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """LORAFLEET_DEMO_*. The URLs are of the containers' network; the ports are where the host publishes them."""

    door_url: str
    admin_url: str
    port: int = 8080
    admin_port: int = 8081
    rank_limit: int = 16


async def bring_in(settings: Settings) -> None:
    """Returns once a demo adapter has answered a request. Raises CannotStart."""
    secrets = secret_file.load_or_create(SECRETS)
    base = describe(MODEL, MODEL.name, (settings.rank_limit,))
    pipeline = _pipeline()
    headers = {"Authorization": f"Bearer {secrets.admin_key}"}
    async with (
        httpx.AsyncClient(base_url=settings.admin_url, headers=headers, timeout=30.0) as admin,
        httpx.AsyncClient(base_url=settings.door_url, timeout=60.0) as door,
    ):
        demo = DemoFleet(admin, door, print)
        secrets = msgspec.structs.replace(secrets, demo_key=await demo.prepare([base], secrets.demo_key))
        secret_file.save(SECRETS, secrets)
        bus = await connect(options(pipeline, "demo-pipeline"))
        announced = await demo.bring_in(bus, demo_folders(base.base_model_hash), INBOX, base.base_model_hash)
        await bus.close()
        for adapter_id in announced.values():
            await demo.wait_active(adapter_id, _ACTIVE_TIMEOUT_S)
        await demo.wait_answer(next(iter(announced), base.name), secrets.demo_key, _ACTIVE_TIMEOUT_S)
    env_file = FLEET / "demo.env"
    published = LocalSettings(port=settings.port, admin_port=settings.admin_port)
    write_private(env_file, demo_env(published, pipeline, secrets, list(announced)).encode())
    served = " ".join([*announced, base.name])
    print(f"lorafleet serves {served}; address and keys are in {env_file}")  # keys are not for logs


def _pipeline() -> BusLogin:
    passwords: dict[str, str] = msgspec.json.decode(CREDENTIALS.read_bytes())
    return BusLogin(url=NATS_URL, user="pipeline", password=passwords["pipeline"])


if __name__ == "__main__":
    try:
        asyncio.run(bring_in(read(Settings, "LORAFLEET_DEMO_", os.environ)))
    except CannotStart as error:
        sys.exit(str(error))
