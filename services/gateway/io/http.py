"""The public HTTP application: what OpenAI's clients call, and what probes and Prometheus read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from services.gateway.core import refusal
from services.gateway.core.directory import Caller, Listed
from services.gateway.core.openapi.document import openapi
from services.gateway.core.refusal import Refusal
from services.gateway.io.door import Door
from services.gateway.io.generation_route import GenerationRoute
from shared.runtime.metrics import CONTENT_TYPE, Metrics


def application(door: Door, routes: Mapping[str, GenerationRoute], metrics: Metrics) -> FastAPI:
    app = FastAPI(title="lorafleet gateway", docs_url=None, redoc_url=None, openapi_url=None)
    # A redirect names the host and scheme of the request, behind a proxy the wrong ones: a key would follow it.
    app.router.redirect_slashes = False
    for path, route in routes.items():
        app.router.routes.append(Route(path, route, methods=["POST"]))
    _add_models(app, door)
    _add_description(app)
    _add_probes(app, door, metrics)
    _add_errors(app)
    return app


def _add_models(app: FastAPI, door: Door) -> None:
    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        caller = _let_in(door, request)
        if isinstance(caller, Refusal):
            return _refused(caller)
        return _json({"object": "list", "data": [_model(listed) for listed in door.models(caller)]})

    @app.get("/v1/models/{name:path}")
    async def model(request: Request, name: str) -> Response:
        caller = _let_in(door, request)
        if isinstance(caller, Refusal):
            return _refused(caller)
        for listed in door.models(caller):
            if listed.name == name:
                return _json(_model(listed))
        return _refused(refusal.model_not_found(name))


def _add_description(app: FastAPI) -> None:
    described = openapi()

    @app.get("/openapi.json")
    async def description() -> Response:
        return Response(described, media_type="application/json")


def _add_probes(app: FastAPI, door: Door, metrics: Metrics) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("alive\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        reason = door.not_ready()
        return Response(f"{reason or 'ready'}\n", status_code=503 if reason else 200, media_type="text/plain")

    @app.get("/metrics")
    async def exposition() -> Response:
        return Response(metrics.exposition(), headers={"content-type": CONTENT_TYPE})


def _add_errors(app: FastAPI) -> None:
    """Whatever goes wrong, clients find it where they look for it."""

    @app.exception_handler(HTTPException)
    async def refused_by_router(request: Request, error: HTTPException) -> Response:
        known = {
            404: f"There is nothing at {request.url.path}.",
            405: f"{request.method} is not allowed at {request.url.path}.",
        }
        message = known.get(error.status_code, str(error.detail))
        return _refused(refusal.bad_request(message, status=error.status_code), dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _refused(refusal.failed("The gateway failed at this request.", code="internal_error"))


def _let_in(door: Door, request: Request) -> Caller | Refusal:
    """A list from a gateway that has not learnt everything would be read as if the rest did not exist."""
    caller = door.authenticate(request.headers.get("authorization"))
    if isinstance(caller, Caller) and (reason := door.not_ready()) is not None:
        return refusal.unavailable(reason, code="not_ready")
    return caller


def _model(listed: Listed) -> dict[str, object]:
    return {
        "id": listed.name,
        "object": "model",
        "created": int(listed.created_at_s),
        "owned_by": listed.owner,
        "parent": listed.parent,
    }


def _refused(why: Refusal, headers: dict[str, str] | None = None) -> Response:
    return Response(
        why.envelope, status_code=why.status, headers={**why.headers, **(headers or {})}, media_type="application/json"
    )


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
