"""How much tenants and keys may ask for: kept here, held by the gateways."""

from __future__ import annotations

import msgspec

from services.registry.core import limits
from services.registry.core.defects import quoted
from services.registry.core.deployment.aliases import Denied
from services.registry.core.limits import Change
from services.registry.io import customer_rows, outbox_rows
from services.registry.io.customer_rows import StoredKey
from services.registry.io.database import Database
from services.registry.io.notes import value
from shared.contracts import catalog
from shared.messages.desired import Limits, TenantRecord
from shared.runtime.clock import Clock


class KeyLimits(msgspec.Struct, frozen=True, kw_only=True):
    key_id: str
    tenant_id: str
    limits: Limits


class TenantLimits(msgspec.Struct, frozen=True, kw_only=True):
    tenant_id: str
    limits: Limits
    keys: tuple[KeyLimits, ...]


class Limiting:
    """Everything here may raise DatabaseUnavailable; nothing was changed then. Gateways hear of a change within
    moments."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def of_tenant(self, tenant_id: str) -> TenantLimits | Denied:
        """Its own, and those of each of its keys."""
        async with self._database.read() as connection:
            tenant = await customer_rows.tenant(connection, tenant_id)
            if tenant is None:
                return _no_tenant(tenant_id)
            keys = await customer_rows.keys_of(connection, tenant_id)
        return TenantLimits(tenant_id=tenant_id, limits=tenant.limits, keys=tuple(_shown(key) for key in keys))

    async def limit_tenant(self, tenant_id: str, change: Change) -> TenantRecord | Denied:
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            known = await customer_rows.tenant(connection, tenant_id)
            if known is None:
                return _no_tenant(tenant_id)
            wanted = limits.changed(known.limits, change)
            if isinstance(wanted, Denied):
                return wanted
            tenant = msgspec.structs.replace(known, limits=wanted)
            await customer_rows.save_tenant(connection, tenant, now_s)
            await outbox_rows.append(connection, [value(catalog.TENANT, tenant, tenant_id)], now_s)
        return tenant

    async def limit_key(self, key_id: str, change: Change) -> KeyLimits | Denied:
        async with self._database.write() as connection:
            known = await customer_rows.key(connection, key_id)
            if known is None:
                return Denied(kind="missing", code="key_unknown", message=f"There is no key {quoted(key_id)}.")
            wanted = limits.changed(known.limits, change)
            if isinstance(wanted, Denied):
                return wanted
            key = msgspec.structs.replace(known, limits=wanted)
            await customer_rows.limit_key(connection, key)
            note = value(catalog.API_KEY, key.record, key.key_hash)
            await outbox_rows.append(connection, [note], self._clock.wall_s())
        return _shown(key)


def _no_tenant(tenant_id: str) -> Denied:
    return Denied(kind="missing", code="tenant_unknown", message=f"There is no tenant {quoted(tenant_id)}.")


def _shown(key: StoredKey) -> KeyLimits:
    return KeyLimits(key_id=key.key_id, tenant_id=key.tenant_id, limits=key.limits)
