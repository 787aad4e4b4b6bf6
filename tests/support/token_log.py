"""What an engine handed out, step by step, and a way to wait for it without sleeping."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from services.replica_worker.engine.port import EngineRequest, StepToken

DEADLINE_S = 60.0


class TokenLog:
    """Give `on_step` to an engine. `steps` holds the tokens of every step, `tokens` those of every request."""

    def __init__(self) -> None:
        self.steps: list[tuple[StepToken, ...]] = []
        self.tokens: dict[str, list[StepToken]] = defaultdict(list)
        self._changed = asyncio.Event()

    def on_step(self, tokens: Sequence[StepToken]) -> None:
        self.steps.append(tuple(tokens))
        for token in tokens:
            self.tokens[token.request_id].append(token)
        self._changed.set()

    def token_ids(self, request_id: str) -> list[int]:
        return [token.token_id for token in self.tokens[request_id]]

    def last(self, request_id: str) -> StepToken:
        return self.tokens[request_id][-1]

    def ended(self, request_id: str) -> bool:
        got = self.tokens[request_id]
        return bool(got) and (got[-1].finish is not None or got[-1].error is not None)

    def step_of(self, request_id: str, index: int = 0) -> int:
        """The step in which a request got its token number `index`."""
        wanted = self.tokens[request_id][index]
        return next(i for i, step in enumerate(self.steps) if any(token is wanted for token in step))

    async def until_ended(self, *request_ids: str) -> None:
        await self._until(lambda: all(self.ended(request_id) for request_id in request_ids))

    async def until_tokens(self, request_id: str, count: int) -> None:
        await self._until(lambda: len(self.tokens[request_id]) >= count)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


def greedy(request_id: str, prompt: Sequence[int], slot: int = -1, max_tokens: int = 16) -> EngineRequest:
    return EngineRequest(
        request_id=request_id,
        slot=slot,
        prompt_token_ids=tuple(prompt),
        max_tokens=max_tokens,
        temperature=0.0,
        top_p=1.0,
        seed=0,
        ignore_eos=True,
    )
