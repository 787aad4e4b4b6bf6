"""What the registry's own code sends to its database while tests run, and not what the tests send themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from loadtest.registry_statements import Statements, listening

_SENDER: ContextVar[str | None] = ContextVar("sender", default=None)
_OURS = "services.registry."


@contextmanager
def overheard() -> Iterator[Statements]:
    """Each statement with the function that sent it first."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("execute", "scalar"):
            patch.setattr(AsyncConnection, name, _telling(getattr(AsyncConnection, name)))
        with listening(_SENDER.get) as statements:
            yield statements


def _telling(send: Any) -> Any:
    async def sent(connection: AsyncConnection, *arguments: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        module = frame.f_globals["__name__"]
        by = f"{module.removeprefix(_OURS)}.{frame.f_code.co_name}" if module.startswith(_OURS) else None
        before = _SENDER.set(by or _SENDER.get())
        try:
            return await send(connection, *arguments, **options)
        finally:
            _SENDER.reset(before)

    return sent
