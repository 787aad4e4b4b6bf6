"""References against a model that only counts: whatever requests do and suffer, in any order, nothing stays held."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.replica_worker.engine.port import AdapterUnusable
from services.replica_worker.tiers.slot_reference import SlotReference
from shared.messages.desired import AdapterRecord
from tests.support.replica import BASE_HASH, Heard, Rig, rig
from tests.support.replica_operations import unload
from tests.support.unruly_engine import UnrulyEngine, unruly

ADAPTERS = 5
"""More than there are slots, so that some wait and some are evicted."""

Move = tuple[str, int]
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "ask twice", "cancel", "step", "bad load", "bad read", "unload", "base"]),
        st.integers(0, ADAPTERS - 1),
    ),
    max_size=24,
)


class Story:
    """One replica with three slots, its engine at a standstill unless it is told to step, and what was asked of it."""

    def __init__(self, replica: Rig, engine: UnrulyEngine, records: list[AdapterRecord]) -> None:
        self.replica = replica
        self.engine = engine
        self.records = records
        self.heard: dict[str, Heard] = {}

    async def tell(self, moves: list[Move]) -> None:
        self.engine.hold()
        for move, number in moves:
            await self.one(move, number)
            self.check()
        self.engine.go()
        await self.replica.caller.wait(lambda: all(heard.answers for heard in self.heard.values()))
        await self.replica.settled()

    async def one(self, move: str, number: int) -> None:
        match move:
            case "ask":
                await self.ask(self.records[number])
            case "ask twice":  # what a client would call n = 2
                await self.ask(self.records[number])
                await self.ask(self.records[number])
            case "base":
                await self.ask(None)
            case "cancel" if self.heard:
                await self.replica.caller.cancel(list(self.heard)[number % len(self.heard)])
            case "step":
                self.engine.allow(number + 1)
            case "bad load" | "bad read":
                self.engine.fail(move.removeprefix("bad "), AdapterUnusable("planted"))
            case "unload":
                await unload(self.replica, self.records[number])
        for _ in range(5):
            await asyncio.sleep(0)  # let what was begun go on for a bit, not to its end

    async def ask(self, record: AdapterRecord | None) -> None:
        name = f"r{len(self.heard)}"
        self.heard[name] = await self.replica.caller.send(self.replica.request(name, record, max_tokens=6))

    def check(self) -> None:
        """A slot has no more references than requests could hold, and one that runs is never empty."""
        loader = self.replica.replica.loader
        opened = self.replica.replica.generation.open
        assert list(loader.slots.table.broken_invariants()) == []
        proofs = loader.slots.table.count
        assert loader.slots.table.references <= opened + proofs


async def told(model: Path, moves: list[Move]) -> None:
    engine = unruly(BASE_HASH, slots=3)
    with tempfile.TemporaryDirectory() as folder:
        async with rig(Path(folder), model, engine=engine, slots=3) as replica:
            records = [await replica.register(f"acme-{at}") for at in range(ADAPTERS)]
            story = Story(replica, engine, records)
            await story.tell(moves)
            replica.assert_sound()
            assert engine.load_figures().running == engine.load_figures().waiting == 0


@settings(max_examples=40)
@given(moves=MOVES)
@example(moves=[("ask", 0), ("ask", 1), ("ask", 2), ("ask", 3), ("cancel", 0), ("unload", 1), ("step", 4)])
@example(moves=[("bad load", 0), ("ask twice", 0), ("ask", 0), ("cancel", 1), ("step", 0)])
def test_c23_nothing_stays_held(model_folder: Path, moves: list[Move]) -> None:
    asyncio.run(told(model_folder, moves))


def test_a_reference_that_is_kept_is_noticed(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlotReference, "release", lambda self: None)
    monkeypatch.setattr("tests.support.replica.DEADLINE_S", 1.0)
    with pytest.raises(TimeoutError):
        asyncio.run(told(model_folder, [("ask", 0), ("step", 4)]))
