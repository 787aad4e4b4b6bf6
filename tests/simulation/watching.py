"""Following a bucket or a subject until it says what a test waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from shared.bus.port import Bus, Change, Ids
from shared.contracts.channel import Channel, Kind


class Followed:
    """The last value of every key of a STATE channel, or the last message of every subject."""

    def __init__(self) -> None:
        self.values: dict[Ids, Any] = {}
        self._changed = asyncio.Event()

    async def start(self, bus: Bus, channel: Channel[Any, Any]) -> Followed:
        if channel.kind is Kind.STATE:
            await bus.state(channel).watch(self._on_change)
        else:
            await bus.subscribe(channel, self._on_message)
        return self

    async def until(self, holds: Callable[[dict[Ids, Any]], Any]) -> Any:
        """Returns the first true answer; put a deadline around it."""
        while not (found := holds(self.values)):
            self._changed.clear()
            await self._changed.wait()
        return found

    async def _on_change(self, change: Change[Any]) -> None:
        if change.value is None:
            self.values.pop(change.ids, None)
        else:
            self.values[change.ids] = change.value
        self._changed.set()

    async def _on_message(self, message: Any, ids: Ids) -> None:
        self.values[ids] = message
        self._changed.set()
