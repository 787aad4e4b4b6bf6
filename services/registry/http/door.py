"""The HTTP application: who is let in, and how everything that goes wrong is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastapi import Depends, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from services.registry.app import Registry
from services.registry.http import (
    adapter_routes,
    alias_routes,
    customer_routes,
    evaluation_routes,
    fleet_routes,
    limit_routes,
    migration_routes,
    probe_routes,
    usage_routes,
)
from services.registry.http.exchange import Problem, busy, error_answer, registry_of
from services.registry.io.database import Collision, DatabaseUnavailable, Unstorable
from services.registry.io.source_unavailable import SourceUnavailable
from shared.bus.port import AskFailed, BusUnavailable, DeadlineExceeded, NoResponders
from shared.runtime.logs import get_logger
from shared.store.port import StoreUnavailable

_log = get_logger(__name__)

_TOPICS = (
    adapter_routes,
    alias_routes,
    customer_routes,
    evaluation_routes,
    fleet_routes,
    limit_routes,
    migration_routes,
    usage_routes,
)

_PROBLEMS: Mapping[type[Exception], Callable[[str], Problem]] = {
    StoreUnavailable: lambda text: busy(f"The store does not answer: {text}.", "store_unavailable"),
    SourceUnavailable: lambda text: busy(f"The weights cannot be read now: {text}.", "source_unavailable"),
    DatabaseUnavailable: lambda text: busy(f"The database does not answer: {text}.", "database_unavailable"),
    Unstorable: lambda text: Problem(422, f"A value in it cannot be kept: {text}.", "unstorable"),
    Collision: lambda _: Problem(409, "Somebody else changed the same thing at once; try again.", "collision"),
    BusUnavailable: lambda text: busy(f"The bus does not answer: {text}.", "bus_unavailable"),
    NoResponders: lambda _: busy("Nobody of that name is on the bus now.", "no_responders"),
    DeadlineExceeded: lambda text: Problem(504, f"It was asked and did not answer in time: {text}.", "no_answer"),
    ClientDisconnect: lambda _: Problem(400, "The client left before its body was whole.", "client_left"),
    AskFailed: lambda text: Problem(502, f"It was asked and failed: {text}.", "ask_failed"),
}


def build_door(registry: Registry) -> FastAPI:
    """No documentation pages: they would answer without a key."""
    door = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    door.state.registry = registry
    door.include_router(probe_routes.router)
    for topic in _TOPICS:
        door.include_router(topic.router, prefix="/internal", dependencies=[Depends(_require_admin)])
    door.add_exception_handler(Problem, _on_problem)
    door.add_exception_handler(HTTPException, _on_http_exception)
    for kind in _PROBLEMS:
        door.add_exception_handler(kind, _on_known)
    door.add_exception_handler(Exception, _on_unknown)
    return door


async def _require_admin(request: Request) -> None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Problem(401, "An admin key is needed: Authorization: Bearer <key>.", "invalid_admin_key")
    if not registry_of(request).is_admin(key.strip()):
        raise Problem(401, "LORAFLEET_ADMIN_KEY is not this fleet's admin key.", "invalid_admin_key")


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error_answer(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """The framework's own: no such path, no such method."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:200]} is not served: {error.detail}."
    return error_answer(Problem(error.status_code, message, "not_served"))


async def _on_known(request: Request, error: Exception) -> Response:
    known = next(kind for kind in type(error).__mro__ if kind in _PROBLEMS)
    problem = _PROBLEMS[known](str(error).rstrip("."))
    _log.warning("a request met trouble", code=problem.code, path=request.url.path, error=error)
    return error_answer(problem)


async def _on_unknown(request: Request, error: Exception) -> Response:
    """The server that runs the application logs it with its traceback."""
    return error_answer(Problem(500, "The registry failed; its log says how.", "internal_error"))
