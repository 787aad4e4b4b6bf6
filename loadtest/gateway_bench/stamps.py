"""Tokens that say when they were said, as those of the mock backend do (`wire.h`): what a client sees later, the way
took."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from services.replica_worker.requests.frame_sender import FrameSender
from shared.bus.port import Bus, Ids, Subscription
from shared.contracts.catalog import GENERATE
from shared.messages.generation import GenerateRequest, TokenChunk

_PACE = re.compile(r"@mock itl_us=(\d+)")


def pace_s(request: GenerateRequest) -> float:
    """How long the steps are that a request wants of a backend without an engine."""
    asked = _PACE.search(request.messages[-1].content)
    return int(asked[1]) / 1e6 if asked else 0.0


def first_stamp(now_ns: int, came_ns: int) -> str:
    return f" @{now_ns}/{came_ns} "


def later_stamp(now_ns: int) -> str:
    return f" @{now_ns} "


class Arrivals:
    """The bus of a replica, which notes when each request reaches it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.at_ns: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def hear(self, channel: Any, on_message: Callable[[Any, Ids], None], *ids: str, **more: Any) -> Subscription:
        def noted(message: Any, found: Ids) -> None:
            self.at_ns[message.request_id] = time.monotonic_ns()
            on_message(message, found)

        return await self._bus.hear(channel, noted if channel is GENERATE else on_message, *ids, **more)


class StampedFrames(FrameSender):
    """Instead of its text every token says the moment at which its step was over."""

    def __init__(self, arrivals: Arrivals, *means: Any) -> None:
        super().__init__(*means)
        self._arrivals = arrivals.at_ns

    def write(self, chunks: Iterable[tuple[str, TokenChunk]]) -> None:
        now_ns = time.monotonic_ns()
        super().write([(gateway_id, self._stamped(chunk, now_ns)) for gateway_id, chunk in chunks])

    def _stamped(self, chunk: TokenChunk, now_ns: int) -> TokenChunk:
        if not chunk.token_ids:
            return msgspec.structs.replace(chunk, text="")
        came_ns = self._arrivals.pop(chunk.request_id, None)
        text = later_stamp(now_ns) if came_ns is None else first_stamp(now_ns, came_ns)
        return msgspec.structs.replace(chunk, text=text)
