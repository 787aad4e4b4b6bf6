"""What is left is taken up again, unless whoever began it ends it meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from services.registry.io import adapter_rows
from services.registry.registration import resumption
from services.registry.registration.resumption import Resumption


class _Database:
    changes = SimpleNamespace(follow_left=lambda: None)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[None]:
        yield None


@pytest.mark.parametrize(
    ("seen", "verified"), [(["registered", "registered"], 1), (["registered", "verified"], 0), (["verified"], 0)]
)
async def test_what_came_to_its_end_between_two_looks_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch, seen: list[str], verified: int
) -> None:
    looks, asked = iter(seen), list[Any]()

    async def find(*_: object) -> SimpleNamespace:
        return SimpleNamespace(status=next(looks), announced="v1")

    async def around(*_: object) -> None:
        return None

    async def verify(*said: object) -> None:
        asked.append(said)

    monkeypatch.setattr(adapter_rows, "find", find)
    monkeypatch.setattr(resumption, "Sight", lambda _: SimpleNamespace(around=around))
    database, verifications, nothing = _Database(), SimpleNamespace(verify=verify), SimpleNamespace()
    assert await Resumption(database, verifications, nothing).advance("v1")  # type: ignore[arg-type]
    assert len(asked) == verified
