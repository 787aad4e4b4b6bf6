"""The live subscriptions of a MemoryBroker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from shared.bus.port import Ids
from shared.contracts.channel import Channel


class Holder(Protocol):
    """The bus that something belongs to."""

    @property
    def connected(self) -> bool: ...


@dataclass(frozen=True)
class Question:
    """What a message carries beside its bytes if somebody waits for the answer: bytes, or a failure in words."""

    asker: Holder
    answer: asyncio.Future[bytes | str]

    def settle(self, answerer: Holder, answer: bytes | str) -> None:
        """An answer needs both ends of the wire, and somebody who still waits."""
        if answerer.connected and self.asker.connected and not self.answer.done():
            self.answer.set_result(answer)


@dataclass(eq=False, kw_only=True)
class Live:
    """One subscription: `prefix` narrows the ids, `group` names those who share the messages ("" for nobody)."""

    holder: Holder
    channel: Channel[Any, Any]
    prefix: Ids
    group: str
    accept: Callable[[bytes, Ids, Question | None], None]
    unanswered: Callable[[Ids], None] | None = None
    _stem: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._stem = tuple(self.channel.wildcard.split("."))

    def matches(self, ids: Ids) -> bool:
        return self.holder.connected and ids[: len(self.prefix)] == self.prefix

    def matches_subject(self, subject: str) -> bool:
        tokens = subject.split(".")
        return (
            len(tokens) == len(self._stem)
            and all(own in ("*", token) for own, token in zip(self._stem, tokens, strict=True))
            and self.matches(self.channel.ids_of(subject))
        )


class MemorySubscription:
    """Something that ends: `close` runs `detach` and then waits for `end`, once."""

    def __init__(self, detach: Callable[[], None], end: Callable[[], Awaitable[None]]) -> None:
        self._detach = detach
        self._end = end
        self._closed = False

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._detach()
            await self._end()
