"""Settings of provisioning."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """LORAFLEET_PROVISION_*. `replicas` is how many servers of a cluster keep each stream."""

    nats_url: str
    nats_user: str
    nats_password: str
    replicas: int = 1
