"""An engine under test, whichever it is, and requests that tell right answers from wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from services.replica_worker.engine.port import (
    AdapterSpec,
    Engine,
    EngineInfo,
    EngineRequest,
    HostAdapter,
)
from tests.support.token_log import TokenLog, greedy

SLOTS, MAX_ROWS, CONTEXT_TOKENS, CHUNK_TOKENS = 6, 32, 512, 64
"""Every subject is started with these."""

WriteAdapter = Callable[[int], tuple[Path, AdapterSpec]]


class Subject:
    """A started engine, what it handed out, and adapters for it by seed."""

    def __init__(self, engine: Engine, log: TokenLog, info: EngineInfo, write_adapter: WriteAdapter) -> None:
        self.engine = engine
        self.log = log
        self.info = info
        self.write_adapter = write_adapter

    async def read(self, seed: int) -> HostAdapter:
        path, spec = self.write_adapter(seed)
        return await self.engine.read(path, spec)

    async def put(self, slot: int, seed: int) -> None:
        await self.engine.load(slot, await self.read(seed))

    async def answers(self, *requests: EngineRequest) -> list[list[int]]:
        """Run them together; the token ids of each."""
        for request in requests:
            self.engine.submit(request)
        await self.log.until_ended(*(request.request_id for request in requests))
        return [self.log.token_ids(request.request_id) for request in requests]

    async def error_of(self, request: EngineRequest) -> str | None:
        await self.answers(request)
        (token,) = self.log.tokens[request.request_id]
        assert token.token_id == -1
        return token.error


def prompt_of(number: int, length: int = 12) -> tuple[int, ...]:
    """Prompts that differ from their first token on and stay clear of control tokens."""
    return tuple(3 + (number * 37 + at * 11) % 250 for at in range(length))


def sampled(request_id: str, seed: int, **changes: object) -> EngineRequest:
    request = greedy(request_id, prompt_of(1), max_tokens=24)
    return msgspec.structs.replace(request, **{"temperature": 1.3, "top_p": 0.9, "seed": seed, **changes})


def crowd(count: int, slots: int) -> list[EngineRequest]:
    """Requests of different lengths over all slots and the base."""
    return [
        greedy(f"crowd-{i}", prompt_of(100 + i, 5 + 7 * i % 90), slot=i % (slots + 1) - 1, max_tokens=10 + i % 9)
        for i in range(count)
    ]


async def mix_faults(subject: Subject) -> list[str]:
    """Which requests of a mixed batch differ from what they answer alone."""
    alone = [
        (await subject.answers(msgspec.structs.replace(request, request_id=f"alone-{request.request_id}")))[0]
        for request in crowd(MAX_ROWS, SLOTS)
    ]
    together = await subject.answers(*crowd(MAX_ROWS, SLOTS))
    names = [request.request_id for request in crowd(MAX_ROWS, SLOTS)]
    return [name for name, one, other in zip(names, alone, together, strict=True) if one != other]
