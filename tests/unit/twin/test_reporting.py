"""What a twin's replica says of itself is what a real one would say."""

from __future__ import annotations

import asyncio
import random

from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.sequence import BatchShape, Sequence
from loadtest.twin.timing import StepTable
from loadtest.virtual_time import run_virtually
from services.replica_worker.engine.timed.engine import TimedEngine
from services.replica_worker.engine.timed.policy import TimedPolicy
from tests.unit.twin.engines import BASE_HASH, Ask, request_of

SHAPE = BatchShape(max_rows=4, kv_tokens=1_600, prefix_cache=False)
ASKED = [Ask(at_s=0.0, prompt_tokens=tokens, output_tokens=60) for tokens in (5, 130, 260, 300, 70)]
LOOKS_S = (0.61, 1.66, 2.57, 10.0)


def _in_the_twin() -> list[int]:
    agenda, seen = Agenda(), list[int]()
    batch = Batch(SHAPE, StepTable(), agenda, lambda first, ended: None, random.Random(0))
    for ask in ASKED:
        agenda.at(0.0, batch.submit, Sequence(None, ask.prompt_tokens, ask.output_tokens))
    for at_s in LOOKS_S:
        agenda.at(at_s, lambda: seen.append(batch.rows.kv_used_tokens))
    agenda.run(1e3)
    return [*seen, batch.rows.kv_total_tokens]


async def _in_the_engine() -> list[int]:
    policy = TimedPolicy(base_model_hash=BASE_HASH, max_rows=4, kv_tokens=SHAPE.kv_tokens, prefix_cache=False)
    engine, loop, over, seen = TimedEngine(policy), asyncio.get_running_loop(), asyncio.Event(), list[int]()
    info = await engine.start(lambda tokens: None)
    for at, ask in enumerate(ASKED):
        engine.submit(request_of(at, ask))
    for at_s in LOOKS_S:
        loop.call_at(at_s, lambda: seen.append(engine.load_figures().kv_used_tokens))
    loop.call_at(LOOKS_S[-1] + 1.0, over.set)
    await over.wait()
    await engine.close()
    return [*seen, info.kv_tokens]


def test_the_kv_cache_is_as_full_as_that_of_the_real_engine() -> None:
    twin = _in_the_twin()
    assert twin == run_virtually(_in_the_engine())
    assert twin[0] > 0.4 * SHAPE.kv_tokens
    assert twin[-2:] == [0, SHAPE.kv_tokens]
