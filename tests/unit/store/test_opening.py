"""A file whose opening nobody waits for any more does not stay open."""

from __future__ import annotations

import asyncio
from io import BytesIO
from threading import Event

import pytest

from shared.store.opening import opened


async def test_what_is_opened_is_the_callers() -> None:
    file = BytesIO(b"weights")
    assert (await opened(lambda: file)).read() == b"weights"
    assert not file.closed


async def test_whoever_is_cancelled_while_a_thread_opens_leaves_nothing_open() -> None:
    begun, goes_on, over = Event(), Event(), Event()

    class Told(BytesIO):
        def close(self) -> None:
            super().close()
            over.set()

    told = Told()

    def slow() -> BytesIO:
        begun.set()
        goes_on.wait()
        return told

    task = asyncio.create_task(opened(slow))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    goes_on.set()
    assert await asyncio.to_thread(over.wait, 10.0)
    assert told.closed


async def test_what_could_not_be_opened_is_said() -> None:
    def fails() -> BytesIO:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        await opened(fails)
