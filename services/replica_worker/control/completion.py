"""Whole answers for evaluation sets, through the same door, turns and engine as everybody's."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count

from services.replica_worker.core.completion import Ending, Host, nothing_answered, output_of, refused, request_of
from services.replica_worker.means import Means
from services.replica_worker.requests.generation import Generation
from services.replica_worker.requests.inside import Inside
from services.replica_worker.requests.running import Running
from shared.messages.completions import Complete, Completed

DEADLINE_S = 55.0
"""Of one call: whoever asked waits a little longer than that."""
_AT_ONCE = 4


class CompletionRefused(Exception):
    """Nothing of a call was answered; the sentence says why. Asking again, here or elsewhere, is safe."""


class Completer:
    def __init__(self, means: Means, generation: Generation) -> None:
        self._by = means
        self._generation = generation
        self._numbers = count(1)

    async def complete(self, ask: Complete, ids: tuple[str, ...]) -> Completed:
        """Each prompt is a request of the record's customer; the adapter is loaded and proven as for any request,
        and stays while one runs. What the deadline finds unanswered says so.

        Raises CompletionRefused, also if the adapter cannot be had.
        """
        host = self._host()
        if why := refused(ask, host):
            raise CompletionRefused(why)
        requests = [
            request_of(prompt, ask.record, host, f"complete-{next(self._numbers)}-{prompt.case}")
            for prompt in ask.prompts
        ]
        now_s = self._by.clock.now_s()
        runs = [Running(request=each, arrived_at_s=now_s, inside=Inside(ask.record)) for each in requests]
        await self._answer_all(runs)
        endings = [_ending(running) for running in runs]
        if (refusal := nothing_answered(endings)) is not None:
            raise CompletionRefused(refusal.reason)
        outputs = (output_of(*each, DEADLINE_S) for each in zip(ask.prompts, endings, strict=True))
        return Completed(replica_id=self._by.identity.replica_id, outputs=tuple(outputs))

    async def _answer_all(self, runs: list[Running]) -> None:
        turns = asyncio.Semaphore(_AT_ONCE)
        with suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
                for running in runs:
                    group.create_task(self._answer(running, turns))

    async def _answer(self, running: Running, turns: asyncio.Semaphore) -> None:
        async with turns:
            try:
                await self._generation.run_inside(running)
            finally:
                self._generation.stop(running)

    def _host(self) -> Host:
        identity = self._by.identity
        return Host(
            pool_id=identity.pool_id,
            base_model_hash=identity.base_model_hash,
            rank_limit=self._by.watch.info.rank_limit,
            only=self._by.loader.merged,
        )


def _ending(running: Running) -> Ending:
    assert running.inside is not None, "it was made with one"
    return Ending(text=running.inside.text, finish=running.inside.finish, refusal=running.inside.refusal)
