"""A version that breaks what was stated of it loses its alias again, with the figures; nobody else does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.registry.core.usage import OF_THE_FLEET
from services.registry.deployment.guarding import Guarding, GuardPolicy
from services.registry.io import usage_ledger, wanted_rows
from shared.contracts import catalog
from shared.messages.adapters import EffectMismatch
from shared.runtime.clock import ManualClock
from tests.support.registry_errors import error_of
from tests.support.registry_shop import PATH, Shop, open_shop
from tests.support.registry_watch import eventually
from tests.support.usage_records import batch, record

MOVED_AT_S = 100.0


class Watched:
    """A shop whose clock stands still; the guard looks when a test has it look."""

    def __init__(self, shop: Shop, clock: ManualClock) -> None:
        here = shop.here.registry
        self.shop = shop
        self.clock = clock
        self.guarding = Guarding(here.database, here.aliasing, here.fleet, clock, GuardPolicy(probe_s=10.0))
        self._calls = 0

    async def deploy(self, **guard: Any) -> None:
        """v2 in place of v1, guarded."""
        assert (await self.shop.put("v2", guard=guard, by="ann")).status_code == 200

    async def served(self, count: int, adapter_id: str = "v2", **changes: Any) -> None:
        """So many requests that have just ended."""
        said = {"adapter_id": adapter_id, "at_s": self.clock.wall_s(), **changes}
        records = [record(f"call-{self._calls + at}", **said) for at in range(count)]
        self._calls += count
        async with self.shop.here.registry.database.write() as connection:
            await usage_ledger.enter(connection, batch(*records))

    async def look(self) -> str:
        """What the alias means after a look."""
        await self.guarding.check()
        return await self.shop.meant()

    async def latest(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.shop.here.admin.get(f"{PATH}/history?limit=1")).json()["history"][0]
        return found


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    clock = ManualClock()
    swept = ("guard_check_s", "wanted_sweep_s", "outbox_look_s", "deadline_sweep_s", "migration_sweep_s")
    only_when_asked = dict.fromkeys(swept, 1e6)
    async with open_shop(tmp_path, clock=clock, rollback_residency_s=20.0, **only_when_asked) as shop:
        await shop.versions("v1", "v2")
        await clock.advance(MOVED_AT_S)
        yield Watched(shop, clock)


async def test_too_many_errors_take_the_alias_back_with_the_figures(watched: Watched) -> None:
    await watched.served(50, outcome="no_capacity", at_s=MOVED_AT_S - 1)  # nothing of that was after the change
    await watched.deploy(max_error_rate=0.2, minimum_requests=10, window_s=30)
    await watched.served(7)
    await watched.served(2, outcome="no_capacity")
    assert await watched.look() == "v2"  # too few to judge
    await watched.served(1, outcome="no_capacity")
    assert await watched.look() == "v1"
    latest = await watched.latest()
    assert (latest["change"], latest["actor"], latest["previous_adapter_id"]) == ("auto_rollback", "guard", "v2")
    assert latest["reason"] == "v2: 3 of 10 requests in 30 s failed (30.0%, allowed are 20.0%)"
    await watched.served(50, outcome="no_capacity", adapter_id="v1")
    assert await watched.look() == "v1"  # what it went back to is not guarded


async def test_what_a_guard_would_go_back_to_is_not_retired(watched: Watched) -> None:
    await watched.deploy(probe=True)
    retire = "/internal/adapters/v1/retire"
    assert error_of(await watched.shop.here.admin.post(retire), 409)["code"] == "adapter_in_use"
    await watched.shop.put("v2", force=True, guard={"probe": True, "hold_s": 1})
    await watched.clock.advance(1)
    await watched.look()
    assert (await watched.shop.here.admin.post(retire)).status_code == 200


async def test_what_a_guard_would_go_back_to_stays_with_its_owners_until_the_guard_is_off(watched: Watched) -> None:
    adapters, shop = watched.shop.here.registry.adapters, watched.shop

    async def is_wanted() -> bool:
        found = await adapters.find("v1")
        return found is not None and found.wanted

    await watched.deploy(probe=True, hold_s=60)
    assert await is_wanted()
    async with shop.here.registry.database.write() as connection:
        await wanted_rows.bound_unnamed(connection, 0.0)
        assert await wanted_rows.run_out(connection, 1e9, 10) == []
    await watched.clock.advance(60)
    await watched.look()
    await shop.is_wanted("v1", False)
    await shop.put("v2", guard={"probe": True})
    await shop.is_wanted("v1", True)
    shop.replicas[0].slot_digest = shop.replicas[1].slot_digest = "another"
    await watched.clock.advance(10)
    assert await watched.look() == "v1"
    await shop.is_wanted("v2", False)
    assert await is_wanted()


async def test_what_is_older_than_the_window_is_forgiven(watched: Watched) -> None:
    await watched.deploy(max_error_rate=0.2, minimum_requests=10, window_s=30)
    await watched.served(8, outcome="no_capacity")
    await watched.clock.advance(31)
    await watched.served(10)
    assert await watched.look() == "v2"


async def test_slow_first_tokens_take_the_alias_back(watched: Watched) -> None:
    await watched.deploy(max_ttft_p95_ms=800, minimum_requests=10)
    await watched.served(9, ttft_ms=100.0)
    await watched.served(1, ttft_ms=1200.0)
    assert await watched.look() == "v1"
    assert (await watched.latest())["reason"] == ("v2: TTFT p95 of 10 requests in 60 s is 1200 ms (allowed are 800 ms)")


async def test_other_weights_in_the_slot_of_one_owner_take_the_alias_back(watched: Watched) -> None:
    await watched.deploy(probe=True)
    assert await watched.look() == "v2"
    watched.shop.replicas[1].slot_digest = "another"
    assert await watched.look() == "v2"  # probes are ten seconds apart
    await watched.clock.advance(10)
    assert await watched.look() == "v1"
    assert (await watched.latest())["reason"] == (
        "v2: the slot on replica-b holds another, evaluated was f1 (fake-1/none)"
    )


async def test_three_failed_probes_in_a_row_count_and_silence_does_not(watched: Watched) -> None:
    await watched.deploy(probe=True)
    watched.shop.placement.owners = ("replica-z",)
    for _ in range(4):
        assert await watched.look() == "v2"
        await watched.clock.advance(10)
    watched.shop.placement.owners = ("replica-a",)
    watched.shop.replicas[0].probe_trouble = "the engine is broken"
    for _ in range(2):
        assert await watched.look() == "v2"
        await watched.clock.advance(10)
    assert await watched.look() == "v1"
    assert (await watched.latest())["reason"] == "v2: 3 probes in a row failed: the engine is broken"


async def test_a_replica_that_refuses_the_version_is_heard(watched: Watched) -> None:
    await watched.deploy(probe=True)
    mismatch = EffectMismatch(adapter_id="v2", digest="d", replica_id="replica-a", expected="this", found="that")
    await watched.shop.place.broker.connect("replica_worker").publish(catalog.ADAPTER_EFFECT_MISMATCH, mismatch)

    async def is_back() -> bool:
        return await watched.look() == "v1"

    await eventually(is_back)
    assert (await watched.latest())["reason"] == "v2: replica-a refuses it, expected is this, found was that"


async def test_a_canary_in_trouble_loses_its_sessions_and_the_alias_stays(watched: Watched) -> None:
    said = {"adapter_id": "v2", "percent": 10, "guard": {"max_error_rate": 0.2, "minimum_requests": 5}}
    await watched.shop.here.admin.put(f"{PATH}/split", json=said)
    await watched.served(5, outcome="no_capacity")
    assert await watched.look() == "v1"
    latest = await watched.latest()
    assert (latest["change"], latest["actor"], latest["split_adapter_id"]) == ("auto_rollback", "guard", None)


async def test_a_version_that_has_held_is_guarded_no_more(watched: Watched) -> None:
    await watched.deploy(max_error_rate=0.2, minimum_requests=5, hold_s=60)
    await watched.clock.advance(59)
    await watched.look()
    assert (await watched.shop.here.admin.get(PATH)).json()["guard"] is not None
    await watched.clock.advance(1)
    await watched.look()
    state = (await watched.shop.here.admin.get(PATH)).json()
    assert (state["guard"], state["revision"], state["adapter_id"]) == (None, 3, "v2")
    latest = await watched.latest()
    assert (latest["change"], latest["actor"], latest["adapter_id"]) == ("unguard", "guard", "v2")
    assert latest["reason"] == "v2 has held for 60 s"
    await watched.served(5, outcome="no_capacity")
    assert await watched.look() == "v2"


async def test_a_full_fleet_speaks_neither_for_nor_against_a_version(watched: Watched) -> None:
    await watched.deploy(max_error_rate=0.2, minimum_requests=10)
    for outcome in OF_THE_FLEET:
        await watched.served(50, outcome=outcome, ttft_ms=None)
    await watched.served(9, outcome="adapter_failed")
    assert await watched.look() == "v2"  # too few to judge
    await watched.served(1)
    assert await watched.look() == "v1"
    assert (await watched.latest())["reason"].startswith("v2: 9 of 10 requests")


async def test_an_alias_without_a_guard_is_never_touched(watched: Watched) -> None:
    await watched.shop.put("v2")
    await watched.served(100, outcome="no_capacity", ttft_ms=1e6)
    for replica in watched.shop.replicas:
        replica.slot_digest = "another"
    assert await watched.look() == "v2"
    assert (await watched.latest())["change"] == "set"


async def test_a_guard_needs_a_version_to_go_back_to(watched: Watched) -> None:
    said = {"adapter_id": "v2", "guard": {"probe": True}}
    error = error_of(await watched.shop.here.admin.put("/internal/aliases/acme/new", json=said), 422)
    assert (error["code"], error["param"]) == ("guard_invalid", "guard")
    assert error["message"] == "A guard needs a version to go back to, and this alias has none."
