"""Tenants and their API keys."""

from __future__ import annotations

import secrets

import msgspec

from services.registry.core.defects import quoted
from services.registry.core.deployment.aliases import Denied
from services.registry.core.tenants import tenant_fault, wanted_tenant
from services.registry.io import customer_rows, outbox_rows
from services.registry.io.customer_rows import StoredKey
from services.registry.io.database import Database
from services.registry.io.notes import removal, value
from services.registry.io.rows import Page
from shared.contracts import catalog
from shared.messages.desired import TenantRecord
from shared.messages.identity import key_of
from shared.runtime.clock import Clock

_KEY_BYTES = 32


class SavedTenant(msgspec.Struct, frozen=True, kw_only=True):
    tenant: TenantRecord
    created: bool


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """The only time that the key itself is seen."""

    key_id: str
    api_key: str
    tenant_id: str
    may_call_base: bool


class Customers:
    """Everything here may raise DatabaseUnavailable; nothing was changed then."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def save_tenant(self, tenant_id: str, weight: float | None) -> SavedTenant | Denied:
        """A new tenant, or another weight for a known one, which keeps its own if none is given."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            known = await customer_rows.tenant(connection, tenant_id)
            tenant = wanted_tenant(known, tenant_id, weight)
            if (fault := tenant_fault(tenant)) is not None:
                return fault
            created = await customer_rows.save_tenant(connection, tenant, now_s)
            await outbox_rows.append(connection, [value(catalog.TENANT, tenant, tenant.tenant_id)], now_s)
        return SavedTenant(tenant=tenant, created=created)

    async def tenants(self, page: Page) -> list[TenantRecord]:
        async with self._database.read() as connection:
            return await customer_rows.tenants(connection, page)

    async def create_key(self, tenant_id: str, may_call_base: bool) -> NewKey | Denied:
        api_key = f"lf-{secrets.token_urlsafe(_KEY_BYTES)}"
        now_s = self._clock.wall_s()
        key = StoredKey(
            key_id=secrets.token_hex(8),
            key_hash=key_of(api_key),
            tenant_id=tenant_id,
            may_call_base=may_call_base,
            created_at_s=now_s,
        )
        async with self._database.write() as connection:
            if not await customer_rows.tenant_exists(connection, tenant_id):
                message = f"There is no tenant {quoted(tenant_id)}."
                return Denied(kind="invalid", code="tenant_unknown", message=message, field="tenant_id")
            await customer_rows.add_key(connection, key)
            await outbox_rows.append(connection, [value(catalog.API_KEY, key.record, key.key_hash)], now_s)
        return NewKey(key_id=key.key_id, api_key=api_key, tenant_id=tenant_id, may_call_base=may_call_base)

    async def keys(self, page: Page) -> list[StoredKey]:
        async with self._database.read() as connection:
            return await customer_rows.keys(connection, page)

    async def revoke_key(self, key_id: str) -> Denied | None:
        """None once it is revoked; gateways hear of it within moments."""
        async with self._database.write() as connection:
            key_hash = await customer_rows.remove_key(connection, key_id)
            if key_hash is None:
                return Denied(kind="missing", code="key_unknown", message=f"There is no key {quoted(key_id)}.")
            await outbox_rows.append(connection, [removal(catalog.API_KEY, key_hash)], self._clock.wall_s())
        return None
