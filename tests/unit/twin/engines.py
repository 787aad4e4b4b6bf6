"""The same requests through the real engine without a model and through the twin's: when does each token come?"""

from __future__ import annotations

import asyncio
import random

import msgspec

from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.sequence import BatchShape, Sequence
from loadtest.twin.timing import StepTable
from loadtest.virtual_time import run_virtually
from services.replica_worker.engine.port import EngineRequest, StepToken
from services.replica_worker.engine.timed.engine import TimedEngine
from services.replica_worker.engine.timed.policy import TimedPolicy

BASE_HASH = "ba5e" * 16

_STEPS = StepTable()


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    prompt_tokens: int
    output_tokens: int
    withdrawn_at_s: float | None = None


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """None: it did not come to that."""

    first_s: float | None
    last_s: float | None


def asks(seed: int, count: int, rate_per_s: float, longest: int = 900) -> list[Ask]:
    draw, at_s, made = random.Random(seed), 0.0, []
    for _ in range(count):
        at_s += draw.expovariate(rate_per_s)
        gone_s = at_s + draw.uniform(0.1, 5.0) if draw.random() < 0.1 else None
        tokens = draw.randint(1, longest), draw.randint(1, 60)
        made.append(Ask(at_s=at_s, prompt_tokens=tokens[0], output_tokens=tokens[1], withdrawn_at_s=gone_s))
    return made


def through_the_twin(asked: list[Ask], shape: BatchShape, steps: StepTable = _STEPS) -> list[Times]:
    agenda = Agenda()
    first: dict[Sequence, float] = {}
    last: dict[Sequence, float] = {}

    def on_step(began: list[Sequence], ended: list[Sequence]) -> None:
        for each in began:
            first.setdefault(each, agenda.now_s)
        for each in ended:
            last[each] = agenda.now_s

    batch = Batch(shape, steps, agenda, on_step, random.Random(0))
    sequences = [Sequence(None, ask.prompt_tokens, ask.output_tokens) for ask in asked]
    for ask, sequence in zip(asked, sequences, strict=True):
        agenda.at(ask.at_s, batch.submit, sequence)
        if ask.withdrawn_at_s is not None:
            agenda.at(ask.withdrawn_at_s, batch.withdraw, sequence)
    agenda.run(1e6)
    return [Times(first_s=first.get(each), last_s=last.get(each)) for each in sequences]


def through_the_engine(asked: list[Ask], shape: BatchShape) -> list[Times]:
    return run_virtually(_through_the_engine(asked, shape))


async def _through_the_engine(asked: list[Ask], shape: BatchShape) -> list[Times]:
    engine = TimedEngine(
        TimedPolicy(
            base_model_hash=BASE_HASH,
            max_rows=shape.max_rows,
            prefill_chunk_tokens=shape.chunk_tokens,
            kv_tokens=shape.kv_tokens,
            prefix_cache=shape.prefix_cache,
        )
    )
    loop = asyncio.get_running_loop()
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    over = asyncio.Event()

    def on_step(tokens: list[StepToken]) -> None:
        for token in tokens:
            first.setdefault(token.request_id, loop.time())
            if token.finish:
                last[token.request_id] = loop.time()

    await engine.start(on_step)  # type: ignore[arg-type]
    for at, ask in enumerate(asked):
        loop.call_at(ask.at_s, engine.submit, request_of(at, ask))
        if ask.withdrawn_at_s is not None:
            loop.call_at(ask.withdrawn_at_s, engine.abort, str(at))
    loop.call_at(asked[-1].at_s + 1_000.0, over.set)
    await over.wait()
    await engine.close()
    return [Times(first_s=first.get(str(at)), last_s=last.get(str(at))) for at in range(len(asked))]


def request_of(at: int, ask: Ask) -> EngineRequest:
    prompt = [3 + (at * 31 + place * 7) % 300 for place in range(ask.prompt_tokens)]
    return EngineRequest(
        request_id=str(at), slot=-1, prompt_token_ids=prompt, max_tokens=ask.output_tokens,
        temperature=0.0, top_p=1.0, seed=0,
    )  # fmt: skip
