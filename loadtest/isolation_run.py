"""One isolation run: many clients ask, one operator interferes, every answer is judged as it comes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from infra.adapters.marked import BASE, Judge, Verdict
from loadtest.isolation_client import AnswerFailed, Client
from loadtest.isolation_plan import Ask, Operation

Operate = Callable[[Operation], Awaitable[bool]]
"""Whether it was done: the fleet may refuse, and does so for an adapter in use."""
_FINDINGS = 20


@dataclass
class Tally:
    """What has come of the requests so far. `wrong` [kind of verdict] counts answers, `operations` [kind] those that
    were done; `findings` are the first sentences about what is wrong."""

    completed: int = 0
    of_base: int = 0
    aborted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    def judged(self, verdict: Verdict) -> None:
        if verdict.kind != "own":
            self.wrong[verdict.kind] += 1
            self.find(verdict.reason)

    def find(self, sentence: str) -> None:
        if len(self.findings) < _FINDINGS:
            self.findings.append(sentence)


class Run:
    """`steps` is shared by all clients: whoever is free takes the next one."""

    def __init__(self, steps: Iterator[Ask | Operation], judge: Judge, operate: Operate) -> None:
        self.tally = Tally()
        self._steps = steps
        self._judge = judge
        self._operate = operate
        self._operations: asyncio.Queue[Operation | None] = asyncio.Queue()

    async def with_clients(self, clients: list[Client]) -> Tally:
        began_s = time.monotonic()
        operator = asyncio.create_task(self._interfere())
        try:
            await asyncio.gather(*(self._ask_on(client) for client in clients))
        finally:
            self._operations.put_nowait(None)
        await operator
        self.tally.wall_s = time.monotonic() - began_s
        return self.tally

    async def _ask_on(self, client: Client) -> None:
        for step in self._steps:
            if isinstance(step, Operation):
                self._operations.put_nowait(step)
            else:
                await self._ask(client, step)
        client.close()

    async def _ask(self, client: Client, ask: Ask) -> None:
        try:
            answer = await client.ask(ask)
        except AnswerFailed as failed:
            self.tally.refused[str(failed)] += 1
            return
        if answer is None or not answer.whole:
            self.tally.aborted += 1
        else:
            self.tally.completed += 1
            self.tally.of_base += answer.adapter_id == BASE
        if answer is not None:
            self.tally.judged(self._judge.judge(answer, ask.meant))

    async def _interfere(self) -> None:
        """One operation after another; those that come faster than they can be done wait."""
        while (operation := await self._operations.get()) is not None:
            self.tally.operations[operation.kind] += await self._operate(operation)
