"""A test that hangs fails, and does not hold up those after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

Within = Callable[[float], AbstractAsyncContextManager[None]]


@pytest.mark.deadline(0.01)
async def test_a_deadline_reaches_the_test_that_it_marks() -> None:
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            await asyncio.Event().wait()


async def test_who_waits_too_long_fails(within: Within) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"still waiting after 0\.01 s"):
        async with within(0.01):
            await asyncio.Event().wait()
