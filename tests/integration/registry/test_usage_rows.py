"""Usage in the database: written once, summed up rightly, found by an index, and forgotten in time."""

from __future__ import annotations

import msgspec
import pytest
from sqlalchemy import select

from services.registry.core.usage import OF_THE_FLEET, RecentUsage
from services.registry.io import usage_ledger, usage_rows, usage_sums
from services.registry.io.database import Database
from services.registry.io.usage_rows import UsageFilter
from services.registry.io.usage_sums import TotalsFilter, WindowsFilter
from services.registry.io.usage_tables import ADAPTER_STATS, TENANT_USAGE, USAGE
from shared.messages.usage import UsageBatch
from tests.support.usage_records import batch, record


async def enter(database: Database, *batches: UsageBatch) -> list[int]:
    async with database.write() as connection:
        return [await usage_ledger.enter(connection, one) for one in batches]


async def test_a_record_is_kept_whole_and_a_batch_that_comes_again_adds_nothing(database: Database) -> None:
    told = batch(record("c1"), record("c2", ttft_ms=None, outcome="replica_lost", tier="", completion_tokens=0))
    assert await enter(database, told) == [2]
    assert await enter(database, told, batch(record("c2"), record("c3"), sequence=2)) == [0, 1]
    async with database.read() as connection:
        rows = (await connection.execute(select(USAGE).order_by(USAGE.c.call_id))).mappings().all()
        [window] = (await connection.execute(select(ADAPTER_STATS))).mappings()
        [day] = (await connection.execute(select(TENANT_USAGE))).mappings()
    assert [row["call_id"] for row in rows] == ["c1", "c2", "c3"]
    fields = told.records[0].__struct_fields__
    assert {name: rows[0][name] for name in fields} == {name: getattr(told.records[0], name) for name in fields}
    assert rows[0]["gateway_id"] == "g1"
    assert dict(window) == {
        "adapter_id": "v1", "window_start": 0.0, "pool_id": "p", "requests": 3, "errors": 1, "tokens": 6,
        "gpu_hits": 2,
    }  # fmt: skip
    assert dict(day) == {"tenant_id": "acme", "day": 0, "requests": 3, "prompt_tokens": 21, "completion_tokens": 6}


async def test_sums_grow_across_batches_by_minute_and_by_day(database: Database) -> None:
    late = record("c3", at_s=86_401.0, pool_id="p2")
    assert await enter(database, batch(record("c1"), late), batch(record("c2", at_s=59.9), sequence=2)) == [2, 1]
    async with database.read() as connection:
        stats = ADAPTER_STATS.c
        windows = (await connection.execute(select(stats.window_start, stats.pool_id, stats.requests))).all()
        days = (await connection.execute(select(TENANT_USAGE.c.day, TENANT_USAGE.c.requests))).all()
    assert sorted(map(tuple, windows)) == [(0.0, "p", 2), (86_400.0, "p2", 1)]
    assert sorted(map(tuple, days)) == [(0, 2), (1, 1)]


async def test_each_minutes_percentiles_are_those_of_its_own_records(database: Database) -> None:
    """The nearest rank: of twenty the 10th and the 19th, of one itself, of none nothing."""
    twenty = [record(f"c{at}", at_s=60.0 + at, ttft_ms=float(21 - at)) for at in range(1, 21)]
    one = [record("d1", at_s=120.0, ttft_ms=7.0), record("d2", at_s=121.0, ttft_ms=None, outcome="no_replica")]
    none = [record("e1", at_s=180.0, ttft_ms=None, outcome="no_replica")]
    await enter(database, batch(*twenty, *one, *none, record("other", adapter_id="v2", at_s=61.0, ttft_ms=900.0)))
    async with database.read() as connection:
        found = await usage_sums.window_ttfts(connection, "v1", 0.0, 180.0)
    assert {each.window_start: (each.first_tokens, each.ttft_p50_ms, each.ttft_p95_ms) for each in found} == {
        60.0: (20, 10.0, 19.0), 120.0: (1, 7.0, 7.0)
    }  # fmt: skip


async def test_records_of_adapters_and_tenants_that_nobody_knows_are_kept(database: Database) -> None:
    assert await enter(database, batch(record(adapter_id="deleted", tenant_id="gone"))) == [1]


async def test_recent_usage_is_the_versions_own_and_takes_the_95th_percentile(
    database: Database,
) -> None:
    good = [record(f"c{at}", at_s=10.0 + at, ttft_ms=float(at)) for at in range(1, 21)]
    bad = [record("e1", at_s=20.0, ttft_ms=None, outcome="replica_lost")]
    left = [record("l1", at_s=20.0, ttft_ms=None, outcome="client_left")]
    full = [record(f"f{at}", at_s=20.0, ttft_ms=None, outcome=code) for at, code in enumerate(OF_THE_FLEET)]
    await enter(database, batch(*good, *bad, *left, *full, record("other", adapter_id="v2", at_s=20.0)))
    async with database.read() as connection:
        assert await usage_rows.recent(connection, "v1", 0.0) == RecentUsage(requests=22, errors=1, ttft_p95_ms=19.0)
        assert await usage_rows.recent(connection, "v1", 30.0) == RecentUsage(requests=1, errors=0, ttft_p95_ms=20.0)
        assert await usage_rows.recent(connection, "v3", 0.0) == RecentUsage(requests=0, errors=0, ttft_p95_ms=None)


async def test_a_clients_own_deadline_is_no_error_and_still_shows_a_version_that_is_slow(database: Database) -> None:
    """Who waits 2 ms in vain says nothing of a version whose first tokens take 5 ms; who waits 3 s does."""
    for adapter_id, waited_ms, found_ms in (("short", 2.0, 5.0), ("long", 3_000.0, 3_000.0)):
        gone = {"ttft_ms": None, "duration_ms": waited_ms, "outcome": "deadline_exceeded", "adapter_id": adapter_id}
        late = [record(f"{adapter_id}{at}", **gone) for at in range(19)]
        good = record(adapter_id, ttft_ms=5.0, adapter_id=adapter_id)
        whole = record(f"{adapter_id}-w", ttft_ms=5.0, outcome="deadline_exceeded", adapter_id=adapter_id)
        await enter(database, batch(good, whole, *late, gateway_id=adapter_id))
        async with database.read() as connection:
            found = await usage_rows.recent(connection, adapter_id, 0.0)
        assert found == RecentUsage(requests=21, errors=0, ttft_p95_ms=found_ms)


async def test_one_failed_answer_of_several_counts_once(database: Database) -> None:
    others = [record(f"c{at}", ttft_ms=None, outcome="other_choice_failed") for at in range(3)]
    await enter(database, batch(record("c9", outcome="replica_lost"), *others))
    async with database.read() as connection:
        found = await usage_rows.recent(connection, "v1", 0.0)
        [window] = await usage_sums.windows(connection, WindowsFilter(adapter_id="v1", since_s=0.0, before_s=60.0))
    assert (found.requests, found.errors) == (1, 1)
    assert (window.requests, window.errors) == (4, 1)


async def test_rates_are_requests_per_day_and_nothing_is_none(database: Database) -> None:
    await enter(database, batch(*(record(f"c{at}", at_s=3_600.0 + at) for at in range(6))))
    async with database.read() as connection:
        found = await usage_rows.rates(connection, ["v1", "v2"], 3_600.0, now_s=7_200.0)
        assert found == {"v1": pytest.approx(144.0), "v2": 0.0}
        many = [f"v{at}" for at in range(1_200)]
        assert len(await usage_rows.rates(connection, many, 0.0, now_s=60.0)) == 1_200


async def test_old_records_and_windows_go_in_bounded_chunks_and_a_tenants_sums_stay(database: Database) -> None:
    await enter(database, batch(*(record(f"c{at}", at_s=60.0 * at) for at in range(5))))
    async with database.write() as connection:
        assert [await usage_ledger.prune(connection, 180.0, 2) for _ in range(3)] == [2, 1, 0]
        assert [await usage_ledger.prune_window(connection, 120.0) for _ in range(3)] == [1, 1, 0]
    async with database.read() as connection:
        assert sorted((await connection.execute(select(USAGE.c.call_id))).scalars()) == ["c3", "c4"]
        assert len((await connection.execute(select(ADAPTER_STATS))).all()) == 3
        assert (await connection.execute(select(TENANT_USAGE.c.requests))).scalar_one() == 5


async def test_pages_go_on_where_the_one_before_ended_also_between_requests_that_ended_at_once(
    database: Database,
) -> None:
    await enter(database, batch(*(record(f"c{at}", at_s=1_764_000_000.1 + at // 3) for at in range(7))))
    listed: list[str] = []
    async with database.read() as connection:
        wanted = UsageFilter(adapter_id="v1", limit=2)
        while page := await usage_rows.listed(connection, wanted):
            listed += [one.call_id for one in page]
            wanted = msgspec.structs.replace(wanted, before=(page[-1].at_s, page[-1].call_id))
    assert listed == ["c6", "c5", "c4", "c3", "c2", "c1", "c0"]


async def test_large_sums_stay_whole_numbers(database: Database) -> None:
    large = 2_000_000_000
    await enter(database, batch(*(record(f"c{at}", completion_tokens=large, prompt_tokens=large) for at in range(4))))
    async with database.read() as connection:
        for by in usage_sums.BY:
            [total] = await usage_sums.totals(connection, TotalsFilter(by=by, since_s=0.0, until_s=10.0))
            assert (total.requests, total.completion_tokens) == (4, 4 * large)
        [window] = await usage_sums.windows(connection, WindowsFilter(adapter_id="v1", since_s=0.0, before_s=60.0))
        assert (window.requests, window.tokens) == (4, 4 * large)
        day = await usage_sums.both(connection, "acme", 0)
        assert (day.agrees, day.recorded.prompt_tokens) == (True, 4 * large)
        assert [one.requests for one in await usage_rows.counted(connection, 0.0)] == [4]
        assert not (await usage_sums.both(connection, "acme", 1)).is_used
