"""The way to generation without the layers that an application has around its other routes."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.core import refusal
from services.gateway.io.answering import send_refusal


class Shortcut:
    """`routes` by their paths get what is posted there; everything else is the application's."""

    def __init__(self, app: ASGIApp, routes: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        posted = scope["type"] == "http" and scope["method"] == "POST"
        route = self._routes.get(scope["path"]) if posted else None
        if route is None:
            await self._app(scope, receive, send)
        else:
            await _guarded(route, scope, receive, send)


async def _guarded(route: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Whatever goes wrong, clients find it where they look for it; the server logs it and ends the connection."""
    begun = False

    async def sending(message: Message) -> None:
        nonlocal begun
        begun = True
        await send(message)

    try:
        await route(scope, receive, sending)
    except Exception:
        if not begun:
            await send_refusal(send, refusal.failed("The gateway failed at this request.", code="internal_error"), {})
        raise
