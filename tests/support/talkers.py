"""Replicas that do what the prompt says, and a count of their tokens that owes nothing to the gateway."""

from __future__ import annotations

import asyncio
from collections import Counter

from shared.bus.port import Bus, Ids
from shared.contracts.catalog import FRAME
from shared.messages.generation import Frame, GenerateRequest
from tests.support.scripted_replica import ScriptedReplica


class Talk:
    """One request as its replica has it."""

    def __init__(self, tenant_id: str) -> None:
        self.tenant_id = tenant_id
        self.said = asyncio.Event()
        self.stopped = asyncio.Event()


class Talkers:
    """The script of replicas whose prompts read `KIND COUNT NAME`: they say COUNT tokens. "refused" are refused; after
    a "leave …" they wait until they are told to stop, and say three tokens more, as a replica does that hears late."""

    def __init__(self) -> None:
        self._by_name: dict[str, Talk] = {}
        self._by_request: dict[str, Talk] = {}
        self._begun = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self.tokens: Counter[str] = Counter()
        """By tenant, those in frames up to the moment when the replica was told to stop."""

    async def listen(self, bus: Bus, replicas: list[ScriptedReplica]) -> None:
        """`bus` is another gateway's, which hears every frame."""
        await bus.subscribe(FRAME, self._on_frame)
        self._tasks += [asyncio.create_task(self._follow_cancels(replica)) for replica in replicas]

    async def __call__(self, replica: ScriptedReplica, request: GenerateRequest) -> None:
        kind, count, name = request.messages[0].content.rsplit(" ", 2)
        talk = self._by_name[name] = self._by_request[request.request_id] = Talk(request.tenant_id)
        self._tasks.append(asyncio.create_task(self._talk(replica, request, talk, (kind, int(count)))))
        async with self._begun:
            self._begun.notify_all()

    async def all_said(self, name: str) -> None:
        """Once the request of this name has got all its tokens."""
        async with self._begun:
            await self._begun.wait_for(lambda: name in self._by_name)
        await self._by_name[name].said.wait()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _talk(
        self, replica: ScriptedReplica, request: GenerateRequest, talk: Talk, wish: tuple[str, int]
    ) -> None:
        kind, count = wish
        await replica.queue(request)
        if kind == "refused":
            await replica.refuse(request, "context_length_exceeded", elsewhere=False)
            return
        await replica.accept(request)
        await replica.say(request, *(f"t{at} " for at in range(count)))
        talk.said.set()
        if kind.startswith("leave"):
            await talk.stopped.wait()
            await replica.say(request, "nobody", "reads", "this")
        else:
            await replica.finish(request)

    async def _follow_cancels(self, replica: ScriptedReplica) -> None:
        while True:
            self._by_request[(await replica.cancelled.get()).request_id].stopped.set()

    async def _on_frame(self, frame: Frame, ids: Ids) -> None:
        for chunk in frame.chunks:
            talk = self._by_request[chunk.request_id]
            if not talk.stopped.is_set():
                self.tokens[talk.tenant_id] += len(chunk.token_ids)
