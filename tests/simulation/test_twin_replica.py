"""A replica of the twin beside a real worker over the real timed engine: the same calls, the same times."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from statistics import fmean, median

import msgspec
import pytest

from loadtest.one_replica import Ask, Told
from loadtest.twin.agenda import Agenda
from loadtest.twin.book import Book
from loadtest.twin.registry import Registry
from loadtest.twin.replica import Body, Ground, Replica
from loadtest.twin.request import Attempt, Request
from loadtest.twin.scenario import PoolShape, Scenario
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import StepTable, Timing
from loadtest.twin.wire import Wire
from loadtest.virtual_time import run_virtually
from loadtest.workloads.call import Call
from services.replica_worker.text.tokenizer import Tokenizer
from tests.simulation.schedule_world import LOAD_S, STEP_S, world
from tests.support.tiny_model import tiny_model_once

BEGIN_S = 5.0
"""By then a worker has started, and measured its base."""
_FOR_EVER = 1e15


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    adapters: int
    slots: int
    rows: int
    requests: int
    rate_per_s: float
    seed: int = 1


class Times(msgspec.Struct, frozen=True, kw_only=True):
    tier: str
    first_s: float
    last_s: float


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


def _asked(plan: Plan) -> list[tuple[float, int, str, int]]:
    """When, which adapter, which prompt, and how many tokens."""
    draw, at_s, asked = random.Random(plan.seed), BEGIN_S, []
    for number in range(plan.requests):
        at_s += draw.expovariate(plan.rate_per_s)
        words = f"{number:04d} " + "word " * draw.randint(5, 150)  # none begins like another: nothing is found cached
        asked.append((at_s, draw.randrange(plan.adapters), words, draw.randint(2, 60)))
    return asked


def _through_the_worker(plan: Plan, folder: Path, model_folder: Path) -> list[Times]:
    async def ask() -> list[Told]:
        async with world(folder, model_folder, plan.adapters, slots=plan.slots, max_rows=plan.rows) as (one, records):

            async def one_of(at: int, at_s: float, adapter: int, words: str, tokens: int) -> Told:
                await one.clock.sleep_s(at_s - one.clock.now_s())
                name, tenant = f"r{at}", f"customer-{adapter}"
                record = records[adapter]
                return await one.run(
                    Ask(request_id=name, tenant_id=tenant, max_tokens=tokens, record=record, prompt=words)
                )

            return list(await asyncio.gather(*(one_of(at, *each) for at, each in enumerate(_asked(plan)))))

    told = run_virtually(ask())
    assert [each.failure for each in told if each.failure] == []
    return [Times(tier=t.tier, first_s=t.first_at_s or 0.0, last_s=t.ended_at_s or 0.0) for t in told]


def _through_the_twin(plan: Plan, model_folder: Path) -> list[Times]:
    agenda, tokenizer = Agenda(), Tokenizer.from_folder(model_folder)
    pool = PoolShape(replicas=1, adapter_bytes=800)
    timing = Timing(
        store_bytes_per_s=_FOR_EVER, store_latency_s=0.0, disk_bytes_per_s=_FOR_EVER, slot_bytes_per_s=800 / LOAD_S
    )
    registry = Registry(Book((pool,), plan.adapters))
    registry.register_all(range(plan.adapters))
    records = list(registry.records.values())
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    attempts: list[Attempt] = []
    ground = Ground(
        agenda=agenda,
        scenario=Scenario(calls=list, customers=plan.adapters, for_s=0.0, pools=(pool,), timing=timing),
        registry=registry,
        wire=Wire(agenda, 0.0, random.Random(0), full=False),
        draw=random.Random(0),
        on_first=lambda attempt: first.setdefault(attempt.request.number, agenda.now_s),
        on_ended=lambda attempt: last.setdefault(attempt.request.number, agenda.now_s),
        on_refused=lambda attempt, refusal: pytest.fail(refusal.reason),
    )
    replica = Replica(
        Body(
            replica_id="replica-1", incarnation="first", pool_id=pool.pool_id, slots=plan.slots, rank_limit=16,
            ram_bytes=1 << 30, disk_bytes=1 << 30, queue_limit=256,
            batch=BatchShape(max_rows=plan.rows), steps=StepTable(base_s=STEP_S),
        ),
        ground,
    )  # fmt: skip
    for at, (at_s, adapter, words, tokens) in enumerate(_asked(plan)):
        prompt = len(tokenizer.encode_chat([{"role": "user", "content": words}]))
        call = Call(at_s, adapter, adapter, prompt, tokens, tokens, True)
        request = Request(at, 0, call, at_s, records[adapter], prompt + tokens, (pool.pool_id,), ())
        attempt = Attempt(
            records[adapter].key, prompt, tokens, id=f"r{at}", request=request, pool_id=pool.pool_id,
            promised=prompt + tokens,
        )  # fmt: skip
        attempts.append(attempt)
        agenda.at(at_s, replica.receive, attempt, lambda _: None)
    agenda.run(10_000.0)
    return [Times(tier=each.tier, first_s=first[at], last_s=last[at]) for at, each in enumerate(attempts)]


def _steps_apart(twin: list[Times], worker: list[Times]) -> list[float]:
    pairs = zip(twin, worker, strict=True)
    return sorted(max(abs(t.first_s - w.first_s), abs(t.last_s - w.last_s)) / STEP_S for t, w in pairs)


@pytest.mark.parametrize("plan", [
    Plan(adapters=4, slots=8, rows=8, requests=60, rate_per_s=2.5),
    Plan(adapters=6, slots=8, rows=4, requests=50, rate_per_s=3.0),
], ids=["a row for everybody", "too few rows"])  # fmt: skip
def test_every_token_comes_within_a_step_of_the_real_workers(tmp_path: Path, model_folder: Path, plan: Plan) -> None:
    twin, worker = _through_the_twin(plan, model_folder), _through_the_worker(plan, tmp_path, model_folder)
    assert [each.tier for each in twin] == [each.tier for each in worker]
    assert _steps_apart(twin, worker)[-1] <= 1.0


def test_with_too_few_slots_requests_wait_as_long_as_at_the_real_worker(tmp_path: Path, model_folder: Path) -> None:
    """Who is paused for whom follows from milliseconds, so runs part after a while; what they come to does not."""
    waits: dict[str, list[float]] = {"twin": [], "worker": []}
    for seed in range(1, 5):
        plan = Plan(adapters=12, slots=4, rows=8, requests=100, rate_per_s=3.0, seed=seed)
        asked_s = [each[0] for each in _asked(plan)]
        runs = _through_the_twin(plan, model_folder), _through_the_worker(plan, tmp_path / str(seed), model_folder)
        for whose, times in zip(waits, runs, strict=True):
            waits[whose] += [time.first_s - at_s for time, at_s in zip(times, asked_s, strict=True)]
    assert median(waits["twin"]) == pytest.approx(median(waits["worker"]), abs=STEP_S)
    assert fmean(waits["twin"]) == pytest.approx(fmean(waits["worker"]), rel=0.15)
    assert fmean(waits["twin"]) > 1.5 * median(waits["twin"]), "there must be something to wait for"
