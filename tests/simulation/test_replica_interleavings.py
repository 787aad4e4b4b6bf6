"""Requests that come, leave, fail and are late at any moment: every reference comes back, whatever the order."""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from loadtest.one_replica import Ask, OneReplica, Plan, Told
from loadtest.virtual_time import LoopClock, run_virtually
from services.replica_worker.core.slot import SlotState
from services.replica_worker.core.slot_decisions import InUse
from services.replica_worker.core.slots import SlotTable
from services.replica_worker.engine.port import AdapterUnusable
from services.replica_worker.engine.timed.policy import TimedPolicy
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from services.replica_worker.tiers.loader import Loader
from services.replica_worker.tiers.slot_reference import SlotReference
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey
from tests.simulation.schedule_world import BASE_HASH, LOAD_S, STEP_S, plan, write_adapters
from tests.support.tiny_model import tiny_model_once
from tests.support.unruly_engine import UnrulyEngine

SLOTS, ROWS, ADAPTERS, REQUESTS = 2, 3, 5, 40
PATIENCE_S = 120.0
"""Of virtual time: many times what all answers together take."""


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


class Storm:
    """What happens to one replica, drawn from one seed."""

    def __init__(self, seed: int, where: Plan) -> None:
        self.draw = random.Random(seed)
        self.engine = UnrulyEngine(
            TimedPolicy(
                base_model_hash=BASE_HASH, slots=SLOTS, max_rows=ROWS, step_s=STEP_S, link_bytes_per_s=800 / LOAD_S
            )
        )
        self.replica = OneReplica(where, self.engine, LoopClock())
        self.told: list[Told] = []
        self._operations: list[asyncio.Task[None]] = []

    async def blow(self) -> None:
        async with self.replica.running():
            files = await asyncio.to_thread(write_adapters, self.replica.folder / "files", ADAPTERS)
            records = [await self.replica.register(*each) for each in files]
            watching = asyncio.create_task(self._watch())
            for at in range(REQUESTS):
                await self._something(at, records)
            await self._all_over(watching)
            self.engine.faults.clear()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*self._operations)
            loader = self.replica.replica.loader
            async with asyncio.timeout(PATIENCE_S):
                await loader.demand.calm()
            assert self.replica.replica.generation.open == 0
            assert self.replica.replica.generation.dispatcher.handed == 0
            assert self.engine.load_figures().running == 0
            # A proof may go on after the last who rode with it.
            await self.replica.clock.sleep_s(5.0)
            assert loader.slots.table.references == 0
            self._check()

    async def _all_over(self, watching: asyncio.Task[None]) -> None:
        """Whoever waits for ever, and whatever is found meanwhile, is a failure and not a test that hangs."""
        over = asyncio.gather(*(told.over.wait() for told in self.told))
        done, _ = await asyncio.wait({over, watching}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()
        over.cancel()
        await asyncio.gather(over, return_exceptions=True)
        for each in done:
            each.result()
        assert over in done, f"{sum(not told.over.is_set() for told in self.told)} requests have no end"

    async def _something(self, at: int, records: list[AdapterRecord]) -> None:
        if self.draw.random() < 0.15:
            self.engine.fail(self.draw.choice(["load", "read"]), AdapterUnusable("planted"))
        if self.draw.random() < 0.3:
            record = self.draw.choice(records)
            await self.replica.tell(msgspec.structs.replace(record, wanted=self.draw.random() < 0.3))
        if self.draw.random() < 0.15:
            self._operations.append(asyncio.create_task(self._operate(self.draw.choice(records))))
        ask = Ask(
            request_id=f"r{at}",
            tenant_id=self.draw.choice("xyz"),
            max_tokens=self.draw.choice([1, 5, 40]),
            record=self.draw.choice([*records, None]),
            deadline_s=self.draw.choice([0.3, 600.0, 600.0]),
        )
        self.told.append(await self.replica.send(ask))
        await self._pass_time()
        if self.draw.random() < 0.4:
            await self.replica.cancel(self.draw.choice(self.told).ask.request_id)

    async def _operate(self, record: AdapterRecord) -> None:
        """What an operator may ask for beside requests."""
        loader = self.replica.replica.loader
        with suppress(AdapterFailed, AdapterUnavailable):
            if self.draw.random() < 0.5:
                await loader.bring(record, "gpu")
            else:
                await loader.drop(record.key)

    async def _pass_time(self) -> None:
        """A few turns of the loop, so that what comes next may fall between any two awaits; or a while."""
        for _ in range(self.draw.randrange(40)):
            await asyncio.sleep(0)
        if self.draw.random() < 0.3:
            await self.replica.clock.sleep_s(self.draw.choice([0.01, 0.2, 1.5]))

    async def _watch(self) -> None:
        while True:
            self._check()
            await self.replica.clock.sleep_s(STEP_S)

    def _check(self) -> None:
        """What is always true, derived anew."""
        replica = self.replica.replica
        table, dispatcher = replica.loader.slots.table, replica.generation.dispatcher
        assert list(table.broken_invariants()) == []
        assert list(dispatcher.broken_invariants()) == []
        assert dispatcher.handed <= ROWS
        for place in table.places():
            assert place.references >= len(dispatcher._handed.on_slot(place.slot)), "dropped under a request"
            held = self.engine.held_digest(place.slot)
            # Before a load has begun to write, what was there before still is; nobody runs on it.
            loaded = place.references and place.key is not None and place.state is SlotState.READY
            assert not loaded or held in (None, place.key.digest)


# A smaller seed is no simpler storm: shrinking would only take time.
@given(seed=st.integers(0, 1 << 32))
@settings(
    max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_c23_no_order_of_events_leaves_a_reference_or_a_wrong_adapter(
    tmp_path_factory: pytest.TempPathFactory, model_folder: Path, seed: int
) -> None:
    where = plan(tmp_path_factory.mktemp("storm"), model_folder, slots=SLOTS, max_rows=ROWS)
    run_virtually(Storm(seed, where).blow())


@pytest.mark.parametrize("every", [1, 7])
def test_c23_a_reference_that_is_not_released_is_noticed(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    release, calls = SlotReference.release, itertools.count(1)

    def forgetful(reference: SlotReference) -> None:
        if next(calls) % every:
            release(reference)

    monkeypatch.setattr(SlotReference, "release", forgetful)
    with pytest.raises(AssertionError):
        run_virtually(Storm(1, plan(tmp_path, model_folder, slots=SLOTS, max_rows=ROWS)).blow())


def test_c24_an_adapter_that_is_dropped_under_its_requests_is_noticed(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vacate, release = SlotTable.vacate, SlotTable.release

    def careless(table: SlotTable, key: AdapterKey) -> int | InUse | None:
        for slot in table._slots:
            slot.references = 0 if slot.key == key else slot.references
        return vacate(table, key)

    def forgiving(table: SlotTable, slot: int, key: AdapterKey, now_s: float) -> None:
        with suppress(ValueError):
            release(table, slot, key, now_s)

    monkeypatch.setattr(SlotTable, "vacate", careless)
    monkeypatch.setattr(SlotTable, "release", forgiving)
    monkeypatch.setattr(Loader, "all_in_use", lambda loader, keys_of: frozenset())
    with pytest.raises(AssertionError, match="dropped under a request"):
        run_virtually(Storm(1, plan(tmp_path, model_folder, slots=SLOTS, max_rows=ROWS)).blow())
