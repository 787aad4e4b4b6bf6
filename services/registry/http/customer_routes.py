"""Tenants, keys and base models."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from services.registry.http.bodies import BaseModelBody, KeyBody, TenantBody
from services.registry.http.exchange import Problem, answer, body, granted, registry_of
from services.registry.io.customer_rows import StoredKey

router = APIRouter()


@router.post("/tenants")
async def save_tenant(request: Request) -> Response:
    wanted = await body(request, TenantBody)
    saved = granted(await registry_of(request).customers.save_tenant(wanted.record))
    return answer(saved.tenant, 201 if saved.created else 200)


@router.get("/tenants")
async def tenants(request: Request) -> Response:
    return answer({"tenants": await registry_of(request).customers.tenants()})


@router.post("/keys")
async def create_key(request: Request) -> Response:
    wanted = await body(request, KeyBody)
    return answer(granted(await registry_of(request).customers.create_key(wanted.tenant_id, wanted.may_call_base)), 201)


@router.get("/keys")
async def keys(request: Request) -> Response:
    return answer({"keys": [_shown(key) for key in await registry_of(request).customers.keys()]})


@router.delete("/keys/{key_id}")
async def revoke_key(request: Request, key_id: str) -> Response:
    granted(await registry_of(request).customers.revoke_key(key_id))
    return Response(status_code=204)


@router.put("/base-models/{base_model_hash}")
async def save_base_model(request: Request, base_model_hash: str) -> Response:
    wanted = await body(request, BaseModelBody)
    if wanted.base_model_hash != base_model_hash:
        raise Problem(422, "base_model_hash is not the one in the path.", "invalid_body", "base_model_hash")
    saved = granted(await registry_of(request).base_models.save(wanted.record))
    return answer(saved.base_model, 201 if saved.created else 200)


@router.get("/base-models")
async def base_models(request: Request) -> Response:
    return answer({"base_models": await registry_of(request).base_models.listed()})


def _shown(key: StoredKey) -> dict[str, object]:
    """Without the hash: a list of keys is no place to look for them."""
    return {
        "key_id": key.key_id,
        "tenant_id": key.tenant_id,
        "may_call_base": key.may_call_base,
        "created_at_s": key.created_at_s,
    }
