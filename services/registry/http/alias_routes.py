"""Deploying and rolling back. An alias holds slashes, so it is the rest of the path."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from services.registry.aliasing import OPERATOR
from services.registry.core.aliases import Change
from services.registry.http.bodies import AliasBody
from services.registry.http.exchange import answer, body, granted, registry_of
from services.registry.io.alias_rows import AliasFilter

_BY_HAND = Change(actor=OPERATOR)

router = APIRouter()


@router.get("/aliases")
async def listed(request: Request) -> Response:
    wanted = AliasFilter(tenant_id=request.query_params.get("tenant_id") or None)
    return answer({"aliases": await registry_of(request).aliasing.listed(wanted)})


@router.post("/aliases/{alias:path}/rollback")
async def roll_back(request: Request, alias: str) -> Response:
    return answer(granted(await registry_of(request).aliasing.roll_back(alias, change=_BY_HAND)))


@router.put("/aliases/{alias:path}")
async def deploy(request: Request, alias: str) -> Response:
    wanted = await body(request, AliasBody)
    change = Change(actor=OPERATOR, expected_adapter_id=wanted.expected_adapter_id)
    return answer(granted(await registry_of(request).aliasing.deploy(alias, wanted.adapter_id, change=change)))


@router.delete("/aliases/{alias:path}")
async def remove(request: Request, alias: str) -> Response:
    return answer(granted(await registry_of(request).aliasing.remove(alias, change=_BY_HAND)))
