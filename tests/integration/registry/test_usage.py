"""Usage comes in once, whatever fails meanwhile, and is told to operators and to placement."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import Connection, Executable, delete, select, text

from services.registry.accounting.traffic import Traffic
from services.registry.accounting.usage_intake import UsageIntake
from services.registry.core.usage import DAY_S
from services.registry.io import usage_ledger
from services.registry.io.database import Database, DatabaseUnavailable
from services.registry.io.meters import Meters
from services.registry.io.usage_tables import ADAPTER_STATS, TENANT_USAGE, USAGE
from shared.bus.memory import MemoryBroker
from shared.contracts.catalog import TRAFFIC, USAGE_RECORDED
from shared.messages.usage import UsageRecord
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from tests.support.registry_place import Place
from tests.support.registry_watch import eventually
from tests.support.registry_world import World
from tests.support.usage_records import batch
from tests.support.usage_records import record as made

TODAY_S = time.time() // DAY_S * DAY_S
NOW_S = TODAY_S - DAY_S / 2
"""Yesterday at noon: what is older than it is kept goes at a registry's start."""


def record(call_id: str, **changes: Any) -> UsageRecord:
    return made(call_id, **{"at_s": NOW_S, **changes})


async def got(world: World, path: str, **params: Any) -> Any:
    answer = await world.admin.get(f"/internal/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def call_ids(world: World, **params: Any) -> list[str]:
    return [one["call_id"] for one in (await got(world, "usage", **params))["usage"]]


async def has(world: World, *names: str) -> bool:
    return set(await call_ids(world)) == set(names)


async def tokens_of(world: World, tenant_id: str) -> int:
    totals = {one["name"]: one for one in (await got(world, "usage/totals"))["totals"]}
    return int(totals[tenant_id]["completion_tokens"])


# -- once, and nothing lost ----------------------------------------------------------------------------


async def test_a_batch_told_twice_counts_once(alone: World, broker: MemoryBroker) -> None:
    gateway, told = broker.connect("gateway"), batch(record("c1"), record("c2"))
    for message_id in ("g1-1", "g1-1", "g1-1-after-the-window"):
        await gateway.publish(USAGE_RECORDED, told, message_id=message_id)
    await gateway.publish(USAGE_RECORDED, batch(record("c3"), sequence=2), message_id="g1-2")
    await eventually(lambda: has(alone, "c1", "c2", "c3"))
    assert await tokens_of(alone, "acme") == 9
    exposition = alone.registry.metrics.exposition().decode()
    assert 'lorafleet_registry_usage_records_total{result="repeated"} 2.0' in exposition


async def test_a_database_that_is_away_brings_the_batch_again(
    alone: World, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Database.write
    tries: list[None] = []

    def away_at_first(self: Database, **options: Any) -> Any:
        tries.append(None)
        if len(tries) == 1:
            raise DatabaseUnavailable("planted")
        return write(self, **options)

    monkeypatch.setattr(Database, "write", away_at_first)
    await broker.connect("gateway").publish(USAGE_RECORDED, batch(record("c1")), message_id="g1-1")
    await eventually(lambda: has(alone, "c1"))
    assert len(tries) > 1


async def test_a_registry_that_dies_between_commit_and_acknowledgement_counts_nothing_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[int] = []

    def die_once(self: Meters, new: int, repeated: int) -> None:
        died.append(new)
        if len(died) == 1:
            raise RuntimeError("killed after its commit")

    monkeypatch.setattr(Meters, "usage", die_once)
    gateway = await place.connect("gateway")
    async with place.registry() as first:
        await gateway.publish(USAGE_RECORDED, batch(record("c1")), message_id="g1-1")
        await eventually(lambda: has(first, "c1"))
    await gateway.publish(USAGE_RECORDED, batch(record("c2"), sequence=2), message_id="g1-2")
    async with place.registry() as second:
        await eventually(lambda: has(second, "c1", "c2"))
        await eventually(lambda: _is(len(died) == 3))
        assert sorted(died) == [0, 1, 1]
        assert await tokens_of(second, "acme") == 6


async def test_a_record_that_no_database_takes_does_not_cost_those_beside_it(
    alone: World, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    told = batch(record("c1"), record("bad", prompt_tokens=1 << 63), record("c2"))
    await broker.connect("gateway").publish(USAGE_RECORDED, told, message_id="g1-1")
    await eventually(lambda: has(alone, "c1", "c2"))
    [line] = [one for one in caplog.records if one.getMessage() == "a usage record cannot be kept"]
    assert line.__dict__["lorafleet_fields"]["call_id"] == "bad"


# -- operators' questions ------------------------------------------------------------------------------


async def entered(world: World, *records: Any) -> None:
    bus = await world.connect("gateway")
    await bus.publish(USAGE_RECORDED, batch(*records), message_id="g1-1")
    names = {one.call_id for one in records}
    await eventually(lambda: _has_at_least(world, names))


async def test_which_requests_a_version_served_is_listed_newest_first_page_by_page(alone: World) -> None:
    mine = [record(f"c{at}", at_s=NOW_S + at // 2) for at in range(7)]
    await entered(alone, *mine, record("other", adapter_id="v2", tenant_id="globex", alias="globex/x", at_s=NOW_S + 3))
    listed, after = [], ""
    while after is not None:
        page = await got(alone, "usage", adapter_id="v1", limit="3", after=after)
        listed += [one["call_id"] for one in page["usage"]]
        after = page["next"]
    assert listed == ["c6", "c5", "c4", "c3", "c2", "c1", "c0"]
    assert await call_ids(alone, tenant_id="globex") == ["other"]
    assert await call_ids(alone, alias="globex/x", since_s=str(NOW_S + 3)) == ["other"]
    assert await call_ids(alone, since_s=str(NOW_S + 1), until_s=str(NOW_S + 2)) == ["c3", "c2"]
    [one] = (await got(alone, "usage", tenant_id="globex"))["usage"]
    assert (one["gateway_id"], one["outcome"], one["completion_tokens"]) == ("g1", "stop", 3)


async def test_totals_by_tenant_adapter_and_alias(alone: World) -> None:
    bad = record("c2", outcome="replica_lost", tier="disk", completion_tokens=1)
    await entered(alone, record("c1"), bad, record("c3", tenant_id="globex", adapter_id="base", alias="tiny"))
    span = {"since_s": str(NOW_S), "until_s": str(NOW_S + 10)}

    async def totals(by: str, **more: str) -> dict[str, dict[str, Any]]:
        return {one.pop("name"): one for one in (await got(alone, "usage/totals", by=by, **span, **more))["totals"]}

    nothing = {"prompt_tokens": None, "errors": None, "gpu_hits": None}
    acme = {"requests": 2, "completion_tokens": 4, "prompt_tokens": 14}
    assert await totals("tenant") == {
        "acme": {**nothing, **acme},
        "globex": {**nothing, "requests": 1, "completion_tokens": 3, "prompt_tokens": 7},
    }
    assert (await totals("alias"))["acme/support:prod"] == {**nothing, **acme}
    assert (await totals("adapter"))["v1"] == {
        **nothing, "requests": 2, "completion_tokens": 4, "errors": 1, "gpu_hits": 1
    }  # fmt: skip
    assert set(await totals("adapter", limit="1")) == {"base"}
    assert set(await totals("adapter", after="base")) == {"v1"}


async def test_an_adapters_minutes_are_told_newest_first(alone: World) -> None:
    times_ms = (None, 20.0, 30.0)
    await entered(alone, *(record(f"c{at}", at_s=NOW_S + 60 * at, ttft_ms=times_ms[at]) for at in range(3)))
    page = await got(alone, "adapters/v1/stats", since_s=str(NOW_S), limit="2")
    assert [(one["window_start"], one["tokens"]) for one in page["windows"]] == [(NOW_S + 120, 3), (NOW_S + 60, 3)]
    rest = await got(alone, "adapters/v1/stats", since_s=str(NOW_S), after=page["next"])
    assert [one["window_start"] for one in rest["windows"]] == [NOW_S]
    assert [one["ttft_p95_ms"] for one in (*page["windows"], *rest["windows"])] == [30.0, 20.0, None]
    assert (await got(alone, "adapters/gone/stats"))["windows"] == []


NONSENSE = {
    "usage?since_s=yesterday": "since_s",
    "usage?until_s=1e300": "until_s",
    "usage?until_s=nan": "until_s",
    "usage?limit=0": "limit",
    "usage?limit=9999": "limit",
    "usage?after=c1": "after",
    "usage?after=1.0_": "after",
    "usage/totals?by=day": "by",
    "usage/reconcile": "tenant_id",
    "adapters/v1/stats?after=x": "after",
}


async def test_a_question_that_makes_no_sense_is_refused_by_field(alone: World) -> None:
    for path, field in NONSENSE.items():
        answer = await alone.admin.get(f"/internal/{path}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (422, field), path


async def test_a_tenants_sums_are_compared_with_its_records(alone: World) -> None:
    await entered(alone, record("c1"), record("c2", at_s=NOW_S - DAY_S), record("c3", tenant_id="globex"))
    found = await got(alone, "usage/reconcile", tenant_id="acme")
    assert (found["agrees"], len(found["days"])) == (True, 2)
    async with alone.registry.database.write() as connection:
        await connection.execute(delete(USAGE).where(USAGE.c.call_id == "c2"))
    found = await got(alone, "usage/reconcile", tenant_id="acme")
    assert found["agrees"] is False
    [wrong] = [day for day in found["days"] if day["summed"] != day["recorded"]]
    assert (wrong["summed"]["completion_tokens"], wrong["recorded"]["completion_tokens"]) == (3, 0)


# -- what else follows ---------------------------------------------------------------------------------


async def test_placement_is_told_who_is_busy_once_and_again_when_it_changes(alone: World, broker: MemoryBroker) -> None:
    records = [record(f"c{at}", at_s=NOW_S - 30.0, adapter_id="v1" if at else "v2") for at in range(7)]
    await entered(alone, *records, record("b", at_s=NOW_S, adapter_id="base"), record("old", at_s=NOW_S - 900.0))
    bucket = broker.connect("placement").state(TRAFFIC)
    clock = ManualClock(NOW_S)
    traffic = Traffic(alone.registry.bus, alone.registry.database, clock)
    await traffic.tell()
    change = await bucket.get("p")
    assert change is not None
    assert change.value is not None
    assert list(change.value.requests_per_s.items()) == [("v1", 0.01), ("v2", 0.0017)]
    await traffic.tell()
    await Traffic(alone.registry.bus, alone.registry.database, clock).tell()
    again = await bucket.get("p")
    assert again is not None
    assert again == change
    await clock.advance(3_600.0)
    await traffic.tell()
    assert await bucket.get("p") == again, "after an outage the last word says who comes first"


async def test_what_is_older_than_it_is_kept_is_forgotten(alone: World) -> None:
    await entered(alone, record("old", at_s=NOW_S - 10 * DAY_S), record("new", at_s=NOW_S - DAY_S))
    database, meters = alone.registry.database, Meters(Metrics("test"))
    await UsageIntake(alone.registry.bus, database, ManualClock(NOW_S), meters, 5 * DAY_S).prune()
    async with database.read() as connection:
        assert (await connection.execute(select(USAGE.c.call_id))).scalars().all() == ["new"]
        assert len((await connection.execute(select(ADAPTER_STATS))).all()) == 1
        assert len((await connection.execute(select(TENANT_USAGE))).all()) == 2


def plan(connection: Connection, query: Executable) -> list[str]:
    words = query.compile(connection, compile_kwargs={"literal_binds": True})  # type: ignore[attr-defined]
    return [row.detail for row in connection.execute(text(f"EXPLAIN QUERY PLAN {words}"))]


def reads_whole_tables(steps: list[str]) -> list[str]:
    return [step for step in steps if step.startswith((f"SCAN {USAGE.name}", f"SCAN {ADAPTER_STATS.name}"))]


async def test_forgetting_reads_no_whole_table(database: Database) -> None:
    """The other queries are explained in a full database; there, whatever forgets finds everything old."""
    async with database.read() as connection:
        for query in (usage_ledger.prune_query(NOW_S, 5_000), usage_ledger.prune_window_query(NOW_S)):
            assert reads_whole_tables(await connection.run_sync(plan, query)) == []
        whole = select(USAGE).where(USAGE.c.outcome == "stop")
        assert reads_whole_tables(await connection.run_sync(plan, whole)) == ["SCAN usage"]


async def _is(value: bool) -> bool:
    return value


async def _has_at_least(world: World, names: set[str]) -> bool:
    return set(await call_ids(world)) >= names
