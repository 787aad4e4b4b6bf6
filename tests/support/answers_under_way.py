"""How far answers are, and which replicas give them, by the frames that go over the bus."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from shared.bus.port import Bus, Ids
from shared.contracts.catalog import FRAME
from shared.messages.generation import Frame, TokenChunk

Giver = tuple[str, str]
"""A process: the id of its replica and its incarnation."""


@dataclass(kw_only=True)
class _Answer:
    """`givers`: the processes that gave tokens of it, in order."""

    givers: list[Giver] = field(default_factory=list)
    tokens: int = 0
    over: bool = False


class AnswersUnderWay:
    """By call id. Whatever a gateway hears is heard here, too; what was lost on the way is not asked for again."""

    def __init__(self) -> None:
        self._answers: dict[str, _Answer] = {}
        self._news = asyncio.Condition()

    async def listen(self, bus: Bus) -> None:
        """`bus` is of somebody who reads frames."""
        await bus.subscribe(FRAME, self._on_frame)

    async def one_reaches(self, tokens: int) -> Giver:
        """Who is in the middle of an answer that has so many tokens or more; waits until there is one."""
        async with self._news:
            await self._news.wait_for(lambda: self._in_the_middle(tokens))
            return self._in_the_middle(tokens)[0]

    async def all_over(self) -> None:
        """Returns once none that has begun is still under way."""
        async with self._news:
            await self._news.wait_for(lambda: all(answer.over for answer in self._answers.values()))

    def went_on_without(self, giver: Giver) -> set[str]:
        """Calls of whose answer it gave some, and another one more after it."""
        return {call_id for call_id, answer in self._answers.items() if giver in answer.givers[:-1]}

    def _in_the_middle(self, tokens: int) -> list[Giver]:
        found = [answer for answer in self._answers.values() if not answer.over and answer.tokens >= tokens]
        return [answer.givers[-1] for answer in found]

    async def _on_frame(self, frame: Frame, ids: Ids) -> None:
        async with self._news:
            for chunk in frame.chunks:
                self._take(chunk, (frame.replica_id, frame.incarnation))
            self._news.notify_all()

    def _take(self, chunk: TokenChunk, giver: Giver) -> None:
        call_id, _, _ = chunk.request_id.rpartition("-")  # every attempt has a number behind it
        answer = self._answers.setdefault(call_id, _Answer())
        if chunk.token_ids and giver not in answer.givers:
            answer.givers.append(giver)
        answer.tokens = chunk.position + len(chunk.token_ids)
        answer.over = chunk.finish is not None
