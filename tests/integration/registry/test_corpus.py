"""Every bad adapter of the corpus is refused with all that is wrong with it, and reaches no replica."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from services.registry.core.defects import CODES
from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from shared.messages.pools import pool_id
from tests.support.corpus import BAD_ADAPTERS
from tests.support.corpus.bad import CORPUS_BASE, LARGEST_FILE_BYTES, Bad
from tests.support.registry_errors import error_of
from tests.support.registry_world import FakePlacement, FakeReplica, World, world

pytestmark = pytest.mark.asyncio(loop_scope="module")

ELSEWHERE = {
    "adapter_id_taken": "of an event alone: a POST is a conflict",
    "alias_is_base_model": "needs a base with the name of an alias",
    "invalid_announcement": "of an event alone: a POST is an invalid body",
    "more_defects": "counts what is left out",
    "weights_changed": "needs a file that changes while it is read",
}
"""Codes without a bad adapter, and why; they have tests of their own."""


class Fleet(msgspec.Struct, frozen=True):
    """A registry, and the one replica of its fleet."""

    registry: World
    replica: FakeReplica


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    broker, replica = MemoryBroker(), FakeReplica("replica-a")

    async def connect(service: str) -> Bus:
        return broker.connect(service)

    await replica.serve(broker.connect("replica_worker"))
    placement = FakePlacement(pool_id(CORPUS_BASE.base_model_hash, 8), ("replica-a",), owners=("replica-a",))
    await placement.serve(broker.connect("placement"))
    async with world(tmp_path_factory.mktemp("corpus"), connect, largest_file_bytes=LARGEST_FILE_BYTES) as registry:
        await registry.prepare()
        record = msgspec.to_builtins(CORPUS_BASE)
        made = await registry.admin.put(f"/internal/base-models/{CORPUS_BASE.base_model_hash}", json=record)
        assert made.status_code == 201
        yield Fleet(registry, replica)


async def register(fleet: Fleet, number: int, bad: Bad) -> list[dict[str, Any]]:
    announced = bad.lay(fleet.registry.folder / "inbox" / f"bad-{number}")
    defects: list[dict[str, Any]] = error_of(await fleet.registry.post(announced), 422)["defects"]
    return defects


@pytest.mark.parametrize("number", range(len(BAD_ADAPTERS)), ids=list(BAD_ADAPTERS))
async def test_a_bad_adapter_is_refused_with_all_that_is_wrong(fleet: Fleet, number: int) -> None:
    bad = list(BAD_ADAPTERS.values())[number]
    defects = await register(fleet, number, bad)
    assert {(one["code"], one["field"]) for one in defects} == bad.faults
    for one in defects:
        assert one["message"].endswith("."), one
        assert one["found"], one
        assert one["allowed"], one
    assert await fleet.registry.status(f"bad-{number}") in ("rejected", None)
    assert fleet.replica.asked == []
    assert list((fleet.registry.folder / "store").rglob("*.safetensors")) == []


async def test_what_is_right_reaches_the_replica_that_saw_nothing_of_the_bad_ones(fleet: Fleet) -> None:
    good = Bad(faults=frozenset()).lay(fleet.registry.folder / "inbox" / "good")
    assert (await fleet.registry.post(good)).status_code == 201
    await fleet.registry.reached("good", "active")
    assert [asked.record.adapter_id for asked in fleet.replica.asked] == ["good"]


async def test_there_is_a_bad_adapter_for_every_code() -> None:
    assert len(BAD_ADAPTERS) >= 40
    met = {code for bad in BAD_ADAPTERS.values() for code, _ in bad.faults}
    assert met | set(ELSEWHERE) == set(CODES)
    assert not met & set(ELSEWHERE)
