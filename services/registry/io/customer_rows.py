"""Tenants and their keys."""

from __future__ import annotations

import msgspec
from sqlalchemy import delete, exists, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.rows import EVERYTHING, Page, columns_of
from services.registry.io.tables import API_KEYS, TENANTS
from shared.messages.desired import ApiKeyRecord, TenantRecord


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without the key: only its SHA-256 is kept."""

    key_id: str
    key_hash: str
    tenant_id: str
    may_call_base: bool
    created_at_s: float

    @property
    def record(self) -> ApiKeyRecord:
        return ApiKeyRecord(key_id=self.key_id, tenant_id=self.tenant_id, may_call_base=self.may_call_base)


async def tenant_exists(connection: AsyncConnection, tenant_id: str) -> bool:
    found = await connection.execute(select(exists().where(TENANTS.c.tenant_id == tenant_id)))
    return found.scalar_one()


async def tenants(connection: AsyncConnection, page: Page = EVERYTHING) -> list[TenantRecord]:
    rows = await connection.execute(page.of(select(TENANTS), TENANTS.c.tenant_id))
    return [TenantRecord(tenant_id=row.tenant_id, weight=row.weight) for row in rows]


async def tenant(connection: AsyncConnection, tenant_id: str) -> TenantRecord | None:
    row = (await connection.execute(select(TENANTS).where(TENANTS.c.tenant_id == tenant_id))).first()
    return None if row is None else TenantRecord(tenant_id=row.tenant_id, weight=row.weight)


async def save_tenant(connection: AsyncConnection, tenant: TenantRecord, now_s: float) -> bool:
    """Whether the tenant is new."""
    here = TENANTS.c.tenant_id == tenant.tenant_id
    changed = await connection.execute(update(TENANTS).where(here).values(weight=tenant.weight))
    if changed.rowcount > 0:
        return False
    await connection.execute(insert(TENANTS).values(**msgspec.to_builtins(tenant), created_at_s=now_s))
    return True


async def keys(connection: AsyncConnection, page: Page = EVERYTHING) -> list[StoredKey]:
    rows = await connection.execute(page.of(select(API_KEYS), API_KEYS.c.key_id))
    return [msgspec.convert(columns_of(row), StoredKey) for row in rows]


async def add_key(connection: AsyncConnection, key: StoredKey) -> None:
    await connection.execute(insert(API_KEYS).values(msgspec.to_builtins(key)))


async def remove_key(connection: AsyncConnection, key_id: str) -> str | None:
    """The hash of the key that is no more, or None if there was none."""
    found = await connection.execute(select(API_KEYS.c.key_hash).where(API_KEYS.c.key_id == key_id))
    key_hash = found.scalar_one_or_none()
    await connection.execute(delete(API_KEYS).where(API_KEYS.c.key_id == key_id))
    return key_hash
