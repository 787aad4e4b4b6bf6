"""`python -m infra.nats.provision`: create the streams and buckets, or bring them up to date."""

from __future__ import annotations

import asyncio
import os
import sys

from infra.nats.settings import Settings
from shared.bus.nats import BusOptions
from shared.bus.nats_provision import provision
from shared.bus.port import BusUnavailable
from shared.runtime.settings import SettingsError, read

PREFIX = "LORAFLEET_PROVISION_"


async def _main() -> None:
    settings = read(Settings, PREFIX, os.environ)
    options = BusOptions(
        url=settings.nats_url, user=settings.nats_user, password=settings.nats_password, client_name="provision"
    )
    for name, outcome in (await provision(options, settings.replicas)).items():
        print(f"{name} {outcome}")


def main() -> int:
    try:
        asyncio.run(_main())
    except (BusUnavailable, SettingsError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
