"""The way to generation without the layers that an application has around its other routes."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send


class Shortcut:
    """`routes` by their paths get what is posted there; everything else is the application's."""

    def __init__(self, app: ASGIApp, routes: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._routes = routes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        posted = scope["type"] == "http" and scope["method"] == "POST"
        route = self._routes.get(scope["path"]) if posted else None
        return (route or self._app)(scope, receive, send)
