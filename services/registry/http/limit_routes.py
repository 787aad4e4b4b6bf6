"""How much tenants and keys may ask for."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from services.registry.core.limits import Change
from services.registry.http.exchange import answer, body, granted, registry_of

router = APIRouter()


@router.get("/tenants/{tenant_id}/limits")
async def limits(request: Request, tenant_id: str) -> Response:
    return answer(granted(await registry_of(request).limiting.of_tenant(tenant_id)))


@router.patch("/tenants/{tenant_id}/limits")
async def limit_tenant(request: Request, tenant_id: str) -> Response:
    """Of all its keys together."""
    change = await body(request, Change)
    return answer(granted(await registry_of(request).limiting.limit_tenant(tenant_id, change)))


@router.patch("/keys/{key_id}/limits")
async def limit_key(request: Request, key_id: str) -> Response:
    """Besides those of its tenant."""
    change = await body(request, Change)
    return answer(granted(await registry_of(request).limiting.limit_key(key_id, change)))
