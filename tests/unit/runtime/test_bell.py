"""One waits, and others wake it."""

from __future__ import annotations

import asyncio

import pytest

from shared.runtime.bell import Bell


async def test_whoever_waits_is_woken_once_and_waits_again_after_a_clear() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    bell.set()
    bell.set()
    bell.clear()  # before the waiter's turn: it was woken all the same
    await waiting
    assert not bell.is_set()
    again = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    assert not again.done()
    bell.set()
    await again
    await bell.wait()  # set already


async def test_a_waiter_that_is_cancelled_leaves_its_place() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    bell.set()
    await bell.wait()
