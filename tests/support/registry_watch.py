"""Waiting for what a registry tells the bus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from shared.bus.port import Bus, Ids
from shared.contracts import catalog
from shared.contracts.channel import Channel
from shared.messages.desired import AdapterRecord, AliasRecord
from shared.messages.identity import key_of

DEADLINE_S = 60.0


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask again, letting everybody else run in between, until it holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():  # noqa: ASYNC110 - a row or a key offers no event to wait for
            await asyncio.sleep(0)


class Heard:
    """The facts of one channel, as they were published."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def follow(self, bus: Bus, channel: Channel[Any, Any]) -> Heard:
        await bus.consume(channel, "test", self._on_message)
        return self

    async def first(self, count: int = 1) -> list[Any]:
        await eventually(lambda: _answered(len(self.messages) >= count))
        return self.messages

    async def _on_message(self, message: Any, ids: Ids) -> None:
        self.messages.append(message)


async def _answered(value: bool) -> bool:
    return value


async def heard(bus: Bus, *channels: Channel[Any, Any]) -> list[Heard]:
    return [await Heard().follow(bus, channel) for channel in channels]


async def value_is(bus: Bus, channel: Channel[Any, Any], key: str, right: Callable[[Any], bool]) -> None:
    """Once the value under this key (None: there is none) is right."""

    async def told() -> bool:
        change = await bus.state(channel).get(key)
        return right(change.value if change else None)

    await eventually(told)


async def alias_is(gateway: Bus, alias: str, adapter_id: str | None) -> AliasRecord | None:
    """What gateways see, once they see this adapter there (None: nothing)."""
    bucket, found = gateway.state(catalog.ALIAS), None

    async def told() -> bool:
        nonlocal found
        change = await bucket.get(key_of(alias))
        found = change.value if change else None
        return (found.adapter_id if found else None) == adapter_id

    await eventually(told)
    return found


async def record_is(bus: Bus, adapter_id: str, status: str | None) -> AdapterRecord | None:
    """What replicas see of an adapter, once it has this status (None: it is gone)."""
    bucket, found = bus.state(catalog.ADAPTER), None

    async def told() -> bool:
        nonlocal found
        change = await bucket.get(key_of(adapter_id))
        found = change.value if change else None
        return (found.status if found else None) == status

    await eventually(told)
    return found
