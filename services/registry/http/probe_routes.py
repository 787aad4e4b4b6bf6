"""What probes and Prometheus ask; without a key."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from services.registry.http.exchange import answer, busy, registry_of
from shared.runtime.metrics import CONTENT_TYPE

router = APIRouter()


@router.get("/healthz")
async def healthz() -> Response:
    return answer({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    reason = await registry_of(request).unready_reason()
    if reason is not None:
        raise busy(f"The registry is not ready: {reason}.", "not_ready")
    return answer({"status": "ok"})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(registry_of(request).metrics.exposition(), media_type=CONTENT_TYPE)
