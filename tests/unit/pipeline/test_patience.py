"""How long a client waits between attempts, and when it gives up."""

from __future__ import annotations

import asyncio

import pytest

from shared.pipeline.door import Patience, Trying
from shared.pipeline.outcome import Unreachable


def test_waits_double_up_to_a_limit_and_have_jitter() -> None:
    longest = Patience(first_s=1.0, longest_s=5.0, draw=lambda: 1.0)
    assert [longest.wait_s(failures) for failures in (1, 2, 3, 4, 5000)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    shortest = Patience(first_s=1.0, longest_s=5.0, draw=lambda: 0.0)
    assert [shortest.wait_s(failures) for failures in (1, 2, 3)] == [0.5, 1.0, 2.0]


async def test_progress_makes_patience_new(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr("shared.pipeline.door.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    trying = Trying(Patience(give_up_s=10.0, first_s=4.0, longest_s=4.0, draw=lambda: 1.0))
    for _ in range(3):
        await trying.failed("broken")
        await trying.failed("broken")
        trying.came_further()
    await trying.failed("broken")
    with pytest.raises(Unreachable, match="could not be asked for 10 s: it says so"):
        await trying.failed("it says so", at_least_s=9.0)
