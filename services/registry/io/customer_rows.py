"""Tenants and their keys."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row, delete, exists, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.rows import EVERYTHING, Page, columns_of
from services.registry.io.tables import API_KEYS, TENANTS
from shared.messages.desired import ApiKeyRecord, Limits, TenantRecord


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without the key: only its SHA-256 is kept."""

    key_id: str
    key_hash: str
    tenant_id: str
    may_call_base: bool
    created_at_s: float
    limits: Limits = Limits()

    @property
    def record(self) -> ApiKeyRecord:
        return ApiKeyRecord(
            key_id=self.key_id, tenant_id=self.tenant_id, may_call_base=self.may_call_base, limits=self.limits
        )


async def tenant_exists(connection: AsyncConnection, tenant_id: str) -> bool:
    found = await connection.execute(select(exists().where(TENANTS.c.tenant_id == tenant_id)))
    return found.scalar_one()


async def tenants(connection: AsyncConnection, page: Page = EVERYTHING) -> list[TenantRecord]:
    rows = await connection.execute(page.of(select(TENANTS), TENANTS.c.tenant_id))
    return [_tenant(row) for row in rows]


async def tenant(connection: AsyncConnection, tenant_id: str) -> TenantRecord | None:
    row = (await connection.execute(select(TENANTS).where(TENANTS.c.tenant_id == tenant_id))).first()
    return None if row is None else _tenant(row)


async def save_tenant(connection: AsyncConnection, tenant: TenantRecord, now_s: float) -> bool:
    """Whether the tenant is new."""
    here = TENANTS.c.tenant_id == tenant.tenant_id
    values = {"weight": tenant.weight, **msgspec.structs.asdict(tenant.limits)}
    changed = await connection.execute(update(TENANTS).where(here).values(values))
    if changed.rowcount > 0:
        return False
    await connection.execute(insert(TENANTS).values(tenant_id=tenant.tenant_id, created_at_s=now_s, **values))
    return True


async def keys(connection: AsyncConnection, page: Page = EVERYTHING) -> list[StoredKey]:
    rows = await connection.execute(page.of(select(API_KEYS), API_KEYS.c.key_id))
    return [_key(row) for row in rows]


async def keys_of(connection: AsyncConnection, tenant_id: str) -> list[StoredKey]:
    wanted = select(API_KEYS).where(API_KEYS.c.tenant_id == tenant_id).order_by(API_KEYS.c.key_id)
    return [_key(row) for row in await connection.execute(wanted)]


async def key(connection: AsyncConnection, key_id: str) -> StoredKey | None:
    row = (await connection.execute(select(API_KEYS).where(API_KEYS.c.key_id == key_id))).first()
    return None if row is None else _key(row)


async def limit_key(connection: AsyncConnection, key: StoredKey) -> None:
    here = API_KEYS.c.key_id == key.key_id
    await connection.execute(update(API_KEYS).where(here).values(msgspec.structs.asdict(key.limits)))


async def add_key(connection: AsyncConnection, key: StoredKey) -> None:
    values = msgspec.structs.asdict(key)
    limits = msgspec.structs.asdict(values.pop("limits"))
    await connection.execute(insert(API_KEYS).values(**values, **limits))


async def remove_key(connection: AsyncConnection, key_id: str) -> str | None:
    """The hash of the key that is no more, or None if there was none."""
    found = await connection.execute(select(API_KEYS.c.key_hash).where(API_KEYS.c.key_id == key_id))
    key_hash = found.scalar_one_or_none()
    await connection.execute(delete(API_KEYS).where(API_KEYS.c.key_id == key_id))
    return key_hash


def _tenant(row: Row[Any]) -> TenantRecord:
    return TenantRecord(tenant_id=row.tenant_id, weight=row.weight, limits=_limits(row))


def _key(row: Row[Any]) -> StoredKey:
    return msgspec.convert({**columns_of(row), "limits": _limits(row)}, StoredKey)


def _limits(row: Row[Any]) -> Limits:
    return Limits(requests_per_min=row.requests_per_min, tokens_per_min=row.tokens_per_min, streams=row.streams)
