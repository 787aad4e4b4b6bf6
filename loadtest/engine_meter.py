"""A stopwatch on an engine of ours, by nothing but its port: when did each step's tokens come?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import msgspec

from loadtest.engine_cases import Answer, Decode, FirstToken, adapter_of, prompt_of
from services.replica_worker.engine.port import BASE_SLOT, Engine, EngineFailed, EngineRequest, StepToken

_ENDLESS_TOKENS = 400


class Steps:
    """The engine's `on_step`: keeps every step with its time until somebody takes it."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[tuple[float, Sequence[StepToken]]] = asyncio.Queue()

    def on_step(self, tokens: Sequence[StepToken]) -> None:
        self._arrived.put_nowait((time.perf_counter(), tokens))

    async def next(self) -> tuple[float, set[str]]:
        """The time and the requests of the next step. Raises EngineFailed for one that brought an error."""
        at_s, tokens = await self._arrived.get()
        if error := next((token.error for token in tokens if token.error), None):
            raise EngineFailed(error)
        return at_s, {token.request_id for token in tokens}

    def forget(self) -> None:
        while not self._arrived.empty():
            self._arrived.get_nowait()


class Meter:
    """Drives one started engine; one question at a time."""

    def __init__(self, engine: Engine, steps: Steps) -> None:
        self._engine = engine
        self._steps = steps
        self._submitted = 0

    async def decode(self, case: Decode) -> Answer:
        """See Decode. Steps count from the one after which every row runs, so prompts are not in them."""
        slots = [adapter_of(row, case.distinct) for row in range(case.rows)]
        async with self.streams([BASE_SLOT if slot is None else slot for slot in slots], case.prompt_tokens):
            stamps = [await self.step_at_s() for _ in range(case.steps + 1)]
        return [after - before for before, after in pairwise(stamps)]

    async def first_token(self, case: FirstToken) -> Answer:
        """See FirstToken."""
        began_s = time.perf_counter()
        self.submit_alone(0 if case.adapted else BASE_SLOT, case.prompt_tokens)
        return [await self.step_at_s() - began_s]

    def submit_alone(self, slot: int, prompt_tokens: int) -> None:
        """One request for one token, which the next step brings. A salt of its own keeps the prefix cache out."""
        self._steps.forget()
        request = self._request(slot, prompt_of(0, prompt_tokens))
        self._engine.submit(msgspec.structs.replace(request, max_tokens=1, cache_salt=request.request_id))

    async def step_at_s(self) -> float:
        """When the next step that brought tokens came."""
        at_s, _ = await self._steps.next()
        return at_s

    @asynccontextmanager
    async def streams(self, slots: Iterable[int], prompt_tokens: int) -> AsyncIterator[None]:
        """Within the block one stream a slot is decoding; nothing of them is left after it."""
        self._steps.forget()
        requests = [self._request(slot, prompt_of(row, prompt_tokens)) for row, slot in enumerate(slots)]
        for request in requests:
            self._engine.submit(request)
        waiting = {request.request_id for request in requests}
        while waiting:
            _, seen = await self._steps.next()
            waiting -= seen
        try:
            yield
        finally:
            for request in requests:
                self._engine.abort(request.request_id)
            await self._engine.probe(prompt_of(0, 1), BASE_SLOT, 1)  # comes back from a step without them

    def _request(self, slot: int, prompt: Sequence[int]) -> EngineRequest:
        self._submitted += 1
        return EngineRequest(
            request_id=str(self._submitted),
            slot=slot,
            prompt_token_ids=prompt,
            max_tokens=_ENDLESS_TOKENS,
            temperature=0.0,
            top_p=1.0,
            seed=0,
            ignore_eos=True,
        )
