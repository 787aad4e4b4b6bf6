"""Tells placement and the autoscaler every second what customers asked for, and the rest before the end."""

from __future__ import annotations

from services.gateway.core.activity import Activity
from services.gateway.post import Post
from shared.runtime.clock import Clock
from shared.runtime.periodic import Periodic

TELL_S = 1.0


class Telling:
    """A part. What the bus does not take is not said again: rates heal, and usage is counted elsewhere."""

    def __init__(self, activity: Activity, post: Post, clock: Clock) -> None:
        self._activity = activity
        self._post = post
        self._clock = clock
        self._turns = Periodic(clock, TELL_S, self._tell)

    async def start(self) -> None:
        await self._turns.start()

    async def stop(self) -> None:
        await self._turns.stop()
        await self._tell()

    async def _tell(self) -> None:
        if (activity := self._activity.take(self._clock.now_s())) is not None:
            await self._post.activity(activity)
