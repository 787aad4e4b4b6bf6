"""What the HTTP door needs from the gateway behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from services.gateway.core.completion import Heading
from services.gateway.core.directory import Caller, Listed
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Wish
from services.gateway.io.outlet import Outlet
from services.gateway.io.sheaf import Sheaf


class Exchange(Protocol):
    """One request that was let in. `adapter_id` is "base" for the base model."""

    @property
    def outlet(self) -> Outlet | Sheaf:
        """A sheaf, if the request asks for several answers."""

    @property
    def adapter_id(self) -> str: ...

    @property
    def heading(self) -> Heading: ...

    @property
    def tool_parser(self) -> str:
        """How the base writes calls."""

    @property
    def limits(self) -> Mapping[str, str]:
        """Headers that say what is left of the caller's limits."""

    def leave(self, reason: str) -> None:
        """Nobody reads the outlet any more. Idempotent."""


class Door(Protocol):
    def authenticate(self, authorization: str | None) -> Caller | Refusal:
        """Whose key is in this header."""

    def models(self, caller: Caller) -> tuple[Listed, ...]:
        """What the caller may call."""

    async def begin(self, caller: Caller, wish: Wish, request_id: str) -> Exchange | Refusal:
        """Let a request in. `request_id` is what the client will know it by."""

    def unique_id(self) -> str:
        """An id that nobody has had before."""

    def turned_away(self, refusal: Refusal, request_id: str) -> None:
        """Record a request that was refused before `begin` took it."""

    def not_ready(self) -> str | None:
        """Why no request can be served now, in one sentence, or None."""
