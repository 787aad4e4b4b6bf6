"""Whose turn it is, over minutes of traffic in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loadtest.one_replica import Ask, OneReplica, Told
from loadtest.thrash import ThrashLoad, measure
from loadtest.virtual_time import LoopClock, run_virtually
from services.replica_worker.core.dispatch_view import DispatchPolicy
from shared.messages.desired import AdapterRecord
from tests.simulation.schedule_world import LOAD_S, STEP_S, plan, timed, world, write_adapters
from tests.support.tiny_model import tiny_model_once


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


class Traffic:
    """Customers who always have `at_once` requests open, until told to stop."""

    def __init__(self, replica: OneReplica) -> None:
        self.replica = replica
        self.told: dict[str, list[Told]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def flood(self, tenant_id: str, record: AdapterRecord | None, at_once: int, max_tokens: int) -> None:
        told = self.told.setdefault(tenant_id, [])
        for stream in range(at_once):
            name = f"{tenant_id}-{len(self._tasks)}-{stream}"
            self._tasks.append(asyncio.create_task(self._endlessly(told, name, tenant_id, record, max_tokens)))

    def tokens(self, tenant_id: str) -> int:
        return sum(told.tokens for told in self.told[tenant_id])

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _endlessly(
        self, told: list[Told], name: str, tenant_id: str, record: AdapterRecord | None, max_tokens: int
    ) -> None:
        number = 0
        while True:
            number += 1
            ask = Ask(request_id=f"{name}-{number}", tenant_id=tenant_id, max_tokens=max_tokens, record=record)
            told.append(await self.replica.send(ask))
            await told[-1].over.wait()


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("tenant_id", ["another", "hot-0"])
def test_c64_a_cold_request_every_10_s_is_served_in_bounded_time_beside_adapters_at_full_load(
    tmp_path: Path, model_folder: Path, slots: int, tenant_id: str
) -> None:
    answer_tokens = 60

    async def cold_waits_s() -> list[float]:
        async with world(tmp_path, model_folder, slots + 1, slots=slots, max_rows=8) as (replica, records):
            traffic = Traffic(replica)
            for at in range(slots):
                traffic.flood(f"hot-{at}", records[at], 12, answer_tokens)
            seen = []
            for at in range(12):
                await replica.clock.sleep_s(10.0)
                ask = Ask(request_id=f"cold-{at}", tenant_id=tenant_id, max_tokens=4, record=records[slots])
                seen.append(await replica.run(ask))
            await traffic.stop()
            assert all(not told.failure for told in seen)
            return [told.ttft_s or 0.0 for told in seen]

    waits_s = run_virtually(cold_waits_s())
    # It is passed over for a second, a slot drains for the rest of one answer, its adapter is loaded, a row
    # becomes free, and its prompt is computed.
    assert max(waits_s) < 1.0 + 2 * answer_tokens * STEP_S + LOAD_S + 4 * STEP_S


@pytest.mark.parametrize(("weight", "share"), [(1.0, 1.0), (2.0, 2.0)])
def test_a_customer_that_floods_tenfold_gets_its_share_and_no_more(
    tmp_path: Path, model_folder: Path, weight: float, share: float
) -> None:
    rows, answer_tokens = 8, 40

    async def tokens() -> tuple[int, int]:
        async with world(tmp_path, model_folder, 2, slots=2, max_rows=rows) as (replica, records):
            await replica.weigh("modest", weight)
            traffic = Traffic(replica)
            traffic.flood("floods", records[0], 120, answer_tokens)
            traffic.flood("modest", records[1], 12, answer_tokens)
            await replica.clock.sleep_s(300.0)
            served = traffic.tokens("modest"), traffic.tokens("floods")
            await traffic.stop()
            return served

    modest, floods = run_virtually(tokens())
    # Counters of customers who both wait differ by at most what the rows can still produce, and by the window.
    slack = 2 * rows * answer_tokens + 512
    assert abs(modest / weight - floods) <= slack
    assert modest / floods == pytest.approx(share, rel=0.1)
    assert modest + floods > 0.9 * rows * 300.0 / STEP_S, "fairness must not leave rows empty"


@pytest.mark.parametrize(("requests", "requests_per_s"), [(150, 0.7), (200, 2.0)])
def test_a_working_set_of_twice_the_slots_does_not_double_the_median_first_token(
    tmp_path: Path, model_folder: Path, requests: int, requests_per_s: float
) -> None:
    """8 slots, 32 rows, 250 tokens, 16 adapters: about 9 requests run at any time, or 25 where 32 are the most."""
    slots, rows = 8, 32
    figures = run_virtually(
        measure(
            lambda: timed(slots, rows),
            write_adapters(tmp_path / "files", 2 * slots),
            plan(tmp_path, model_folder, slots=slots, max_rows=rows),
            ThrashLoad(requests=requests, requests_per_s=requests_per_s, max_tokens=250),
            LoopClock(),
        )
    )
    assert figures["thrash_ttft_ratio"].met, {name: str(figure) for name, figure in figures.items()}
    assert figures["thrash_failed"].met
    assert (figures["thrash_longest_gap"].value or 0.0) < 3 * DispatchPolicy().round_s
    assert (figures["in_cache_longest_gap"].value or 0.0) < 2 * STEP_S, "nobody waits for a slot: nobody is paused"
    assert figures["thrash_resident_share"].value is not None
    assert figures["thrash_resident_share"].value < 0.8, "the adapters must not fit"
