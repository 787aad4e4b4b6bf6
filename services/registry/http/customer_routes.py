"""Tenants, keys and base models."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from services.registry.core.base_migration.bases import StoredBase
from services.registry.core.base_migration.pointers import StillNeeded
from services.registry.http.bodies import BaseModelBody, KeyBody, TenantBody
from services.registry.http.exchange import Problem, answer, body, granted, registry_of
from services.registry.http.paging import page_of, paged
from services.registry.http.pointing import in_use
from services.registry.io.customer_rows import StoredKey

router = APIRouter()


@router.post("/tenants")
async def save_tenant(request: Request) -> Response:
    wanted = await body(request, TenantBody)
    saved = granted(await registry_of(request).customers.save_tenant(wanted.tenant_id, wanted.weight))
    return answer(saved.tenant, 201 if saved.created else 200)


@router.get("/tenants")
async def tenants(request: Request) -> Response:
    page = page_of(request)
    found = await registry_of(request).customers.tenants(page)
    return paged("tenants", found, page, lambda tenant: tenant.tenant_id, msgspec.to_builtins)


@router.post("/keys")
async def create_key(request: Request) -> Response:
    wanted = await body(request, KeyBody)
    return answer(granted(await registry_of(request).customers.create_key(wanted.tenant_id, wanted.may_call_base)), 201)


@router.get("/keys")
async def keys(request: Request) -> Response:
    page = page_of(request)
    return paged("keys", await registry_of(request).customers.keys(page), page, lambda key: key.key_id, _shown)


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
    """Those that are served; with `retired=true` the others too, each with `retired_at_s`."""
    known, page = registry_of(request).base_models, page_of(request)
    if request.query_params.get("retired") != "true":
        found = await known.listed(page)
        return paged("base_models", found, page, lambda base: base.name, msgspec.to_builtins)
    every = await known.every(page)
    return paged("base_models", every, page, lambda base: base.record.name, _shown_base)


@router.post("/base-models/{base_model_hash}/retire")
async def retire_base_model(request: Request, base_model_hash: str) -> Response:
    outcome = await registry_of(request).base_models.retire(base_model_hash)
    if isinstance(outcome, StillNeeded):
        raise in_use(outcome)
    return answer(_shown_base(granted(outcome)))


def _shown_base(base: StoredBase) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(base.record)
    return {**plain, "retired_at_s": base.retired_at_s}


def _shown(key: StoredKey) -> dict[str, object]:
    """Without the hash: a list of keys is no place to look for them."""
    return {
        "key_id": key.key_id,
        "tenant_id": key.tenant_id,
        "may_call_base": key.may_call_base,
        "created_at_s": key.created_at_s,
        "limits": key.limits,
    }
