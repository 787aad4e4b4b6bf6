"""Everything the registry can do, as its HTTP door sees it."""

from __future__ import annotations

import hmac

import msgspec

from services.registry.accounting.usage import Usage
from services.registry.adapters import Adapters
from services.registry.base_migration.base_models import BaseModels
from services.registry.base_migration.moving import Moving
from services.registry.customers import Customers
from services.registry.deployment.aliasing import Aliasing
from services.registry.fleet import Fleet
from services.registry.gating.evaluating import Evaluating
from services.registry.io.database import Database, DatabaseUnavailable
from services.registry.limiting import Limiting
from services.registry.precedence import Precedence
from services.registry.registration.registrations import Registrations
from services.registry.registration.uploads import Uploads
from services.registry.relay import Relay
from shared.bus.port import Bus
from shared.runtime.metrics import Metrics


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    registrations: Registrations
    precedence: Precedence
    adapters: Adapters
    evaluating: Evaluating
    aliasing: Aliasing
    customers: Customers
    limiting: Limiting
    base_models: BaseModels
    uploads: Uploads
    fleet: Fleet
    usage: Usage
    moving: Moving
    relay: Relay
    database: Database
    bus: Bus
    metrics: Metrics
    admin_key: str

    def is_admin(self, key: str) -> bool:
        """In a time that tells nothing about how much of the key was right."""
        return hmac.compare_digest(key.encode(), self.admin_key.encode())

    async def unready_reason(self) -> str | None:
        """Why it cannot do its work now, or None."""
        if not self.bus.connected:
            return "the bus cannot be reached"
        try:
            await self.database.check()
        except DatabaseUnavailable as error:
            return str(error)
        return self.relay.unready_reason()
