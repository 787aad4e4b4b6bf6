"""Evaluation sets, reports, results that pipelines post, and a person's word against them."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from services.registry.core.gating.evaluation_sets import LARGEST_SET_BYTES, Policy
from services.registry.core.gating.overrides import Override
from services.registry.gating.evaluation_sets import Wanted
from services.registry.gating.results import Posted
from services.registry.http.adapter_routes import shown
from services.registry.http.bodies import OverrideBody, PipelineKeyBody
from services.registry.http.exchange import Problem, answer, body, granted, limited, registry_of, rejection

LARGEST_PAGE = 1000
_REPORTS = 10
_MOST_DIGITS = 4

router = APIRouter()


@router.post("/evaluation-sets")
async def save_set(request: Request) -> Response:
    """The body is the set, one JSON object a line; for whom it is, and its policy, stand in the query."""
    asked = request.query_params
    policy = Policy(
        minimum_score=_number(request, "minimum_score", Policy().minimum_score),
        epsilon=_number(request, "epsilon", Policy().epsilon),
    )
    if not asked.get("tenant_id"):
        raise Problem(422, "tenant_id is missing.", "invalid_query", "tenant_id")
    wanted = Wanted(tenant_id=asked["tenant_id"], adapter_id=asked.get("adapter_id", ""), policy=policy)
    raw = b"".join([chunk async for chunk in limited(request, LARGEST_SET_BYTES)])
    saved = await registry_of(request).evaluating.sets.save(wanted, raw)
    if isinstance(saved, tuple):
        raise rejection(saved)
    made = granted(saved)
    said = msgspec.to_builtins(made.made)
    return answer({**said, "cases": len(made.made.cases)}, 201 if made.created else 200)


@router.get("/evaluation-sets")
async def sets(request: Request) -> Response:
    tenant_id = request.query_params.get("tenant_id") or None
    found = await registry_of(request).evaluating.sets.listed(tenant_id, _limit(request, LARGEST_PAGE))
    return answer({"evaluation_sets": found})


@router.get("/adapters/{adapter_id}/evaluations")
async def reports(request: Request, adapter_id: str) -> Response:
    """The latest report first; `override` is who decided against them, and why."""
    found = granted(await registry_of(request).evaluating.verdicts.reports(adapter_id, _limit(request, _REPORTS)))
    said = {"adapter_id": adapter_id, "status": found.adapter.status, "reason": found.adapter.reason}
    return answer({**said, "override": found.override, "reports": found.reports})


@router.post("/adapters/{adapter_id}/evaluations")
async def post_results(request: Request, adapter_id: str) -> Response:
    posted = await body(request, Posted)
    return answer(shown(granted(await registry_of(request).evaluating.results.post(adapter_id, posted))))


@router.post("/adapters/{adapter_id}/override")
async def override(request: Request, adapter_id: str) -> Response:
    said = await body(request, OverrideBody)
    wish = Override(by=said.by, reason=said.reason)
    return answer(shown(granted(await registry_of(request).evaluating.verdicts.override(adapter_id, wish))))


@router.post("/pipeline-keys")
async def add_key(request: Request) -> Response:
    said = await body(request, PipelineKeyBody)
    keys = registry_of(request).evaluating.keys
    return answer(granted(await keys.add(said.name, said.public_key, said.tenant_id)), 201)


@router.get("/pipeline-keys")
async def keys(request: Request) -> Response:
    return answer({"pipeline_keys": await registry_of(request).evaluating.keys.listed()})


@router.delete("/pipeline-keys/{key_id}")
async def revoke_key(request: Request, key_id: str) -> Response:
    granted(await registry_of(request).evaluating.keys.revoke(key_id))
    return Response(status_code=204)


def _number(request: Request, name: str, default: float) -> float:
    text = request.query_params.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise Problem(422, f"{name} must be a number.", "invalid_query", name) from None


def _limit(request: Request, default: int) -> int:
    text = request.query_params.get("limit", str(default))
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not 0 < int(text) <= LARGEST_PAGE:
        raise Problem(422, f"limit must be a number from 1 to {LARGEST_PAGE}.", "invalid_query", "limit")
    return int(text)
