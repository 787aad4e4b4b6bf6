"""`make bench-placement`: how long placement thinks about fleets of two sizes, into reports/placement.json.

One process decides with the same pure function as the live service: first for a fleet of which nothing is known, then
after one replica has left, after another has joined, and when nothing has changed. Times are of the whole decision,
from what was heard to the shards that differ, each the middle one of several; they are times of the processor, so that
whatever else runs on the machine counts little: a decision waits for nothing and uses one core.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Mapping

import msgspec

from loadtest.report import Figure, write_report
from services.placement.core.decide import Facts, Stored
from services.placement.core.demand import Demand, fold
from services.placement.core.membership import observe
from services.placement.core.tick import Decision, Memory, TickPolicy, after, on_tick
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey, key_of
from shared.messages.pools import pool_id
from shared.messages.reports import ReplicaReport
from shared.messages.usage import MOST_BUSY, PoolTraffic

BASE_HASH = key_of("the base model of this benchmark")
POOL = pool_id(BASE_HASH, 16)
ADAPTER_BYTES = 80 << 20
POLICY = TickPolicy()
SIZES = {"20k_x_100": (20_000, 100, 7), "100k_x_1000": (100_000, 1_000, 3)}
"""Adapters, replicas, and how often each is measured."""


_SETTLING_S = 10
"""By then a newcomer has been given all that it owns, a few at a time."""


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds that each decision took, and the shards that the replica which left had written."""

    full_ms: float
    leaves_ms: float
    joins_ms: float
    quiet_ms: float
    shards_written: int
    shards: int


def facts(
    adapters: Mapping[AdapterKey, AdapterRecord], replicas: Mapping[str, ReplicaReport], now_s: float, demand: Demand
) -> Facts:
    """Every replica has just reported; a few customers send most of the traffic, and each has sent something lately."""
    busiest = list(adapters.values())[:MOST_BUSY]
    traffic = {record.adapter_id: 40.0 / (place + 1) for place, record in enumerate(busiest)}
    return Facts(
        now_s=now_s,
        real_s=now_s,
        adapters=adapters,
        rank_classes={POOL: 16},
        seen={name: observe(None, report, now_s) for name, report in replicas.items()},
        drained=frozenset(),
        held={},
        traffic={POOL: PoolTraffic(pool_id=POOL, at_s=1.0, requests_per_s=traffic)},
        activity=demand,
    )


def asked_of(adapters: Mapping[AdapterKey, AdapterRecord]) -> Demand:
    """By a gateway that has named everybody once."""
    once = {record.adapter_id: AdapterActivity(requests=1, finished=1, tokens=250) for record in adapters.values()}
    pool = PoolActivity(requests=len(once), tokens=250 * len(once), adapters=once)
    said = GatewayActivity(gateway_id="gateway", sequence=1, interval_s=60.0, pools={POOL: pool})
    return fold(Demand(), said, 0.0, POLICY.demand)


def registered(count: int, seed: int) -> dict[AdapterKey, AdapterRecord]:
    draw = random.Random(seed)
    records = []
    for number in range(count):
        adapter_id = f"customer-{draw.getrandbits(40):010x}-{number}"
        digest = key_of(adapter_id)
        records.append(
            AdapterRecord(
                adapter_id=adapter_id, digest=digest, tenant_id="acme", version="1", pool_id=POOL,
                base_model_hash=BASE_HASH, rank=16, alpha=32.0, target_modules=("q_proj",), size_bytes=ADAPTER_BYTES,
                store_key=f"adapters/{digest}.safetensors", status="active",
            )
        )  # fmt: skip
    return {record.key: record for record in records}


def reporting(count: int) -> dict[str, ReplicaReport]:
    return {
        f"replica-{number}": ReplicaReport(
            replica_id=f"replica-{number}", incarnation="first", pool_id=POOL, sequence=1, ready=True, draining=False,
            base_model_hash=BASE_HASH, rank_limit=16, engine="timed", engine_build="bench", slots=250, slots_busy=0,
            max_rows=32, running=0, queue_depth=0, tokens_in_flight=0, tokens_per_s=0.0, evictions_per_min=0.0,
            loads_per_min=0.0, ram_bytes=0, ram_budget_bytes=64 << 30, disk_bytes=0, disk_budget_bytes=256 << 30,
        )
        for number in range(count)
    }  # fmt: skip


def timed(adapters: Mapping[AdapterKey, AdapterRecord], count: int) -> Timed:
    """One round: a fleet from nothing, one that leaves, one that joins, and a second in which nothing happens."""
    replicas = reporting(count + 1)
    first = {name: report for name, report in replicas.items() if name != f"replica-{count}"}
    fewer = {name: report for name, report in first.items() if name != "replica-7"}
    more = {**fewer, f"replica-{count}": replicas[f"replica-{count}"]}
    memory, stored, times, written, demand = Memory(), Stored(), list[float](), 0, asked_of(adapters)
    for second, those in enumerate((first, fewer, more, *[more] * _SETTLING_S), start=1):
        known = facts(adapters, those, float(second), demand)
        gc.collect()
        began_s = time.thread_time()
        decision = on_tick(memory, known, stored, POLICY, 1)
        times.append((time.thread_time() - began_s) * 1000)
        memory, stored = decision.memory, after(stored, decision)
        written += len(decision.shards.puts) if second == 2 else 0
    return Timed(
        full_ms=times[0], leaves_ms=times[1], joins_ms=times[2], quiet_ms=times[-1], shards_written=written,
        shards=len(stored.shards),
    )  # fmt: skip


def moved_share(adapters: Mapping[AdapterKey, AdapterRecord], count: int) -> float:
    """Of all placements, those that somebody is newly given when one of the replicas leaves."""
    replicas = reporting(count)
    before = on_tick(Memory(), facts(adapters, replicas, 1.0, Demand()), Stored(), POLICY, 1)
    fewer = {name: report for name, report in replicas.items() if name != "replica-7"}
    stored = after(Stored(), before)
    left = on_tick(before.memory, facts(adapters, fewer, 2.0, Demand()), stored, POLICY, 1)
    had, has = placements(before), placements(left)
    return len(has - had) / len(had)


def placements(decision: Decision) -> set[tuple[str, str]]:
    return {(name, one.adapter_id) for name, plan in decision.plans.items() for one in plan.adapters}


def figures() -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for size, (adapter_count, replica_count, rounds) in SIZES.items():
        adapters = registered(adapter_count, seed=adapter_count)
        seen = [timed(adapters, replica_count) for _ in range(rounds)]
        full_ms = statistics.median(each.full_ms for each in seen)
        if replica_count == 100:
            found[f"place.{size}_ms"] = Figure(value=round(full_ms, 1), unit="ms", target="<= 300")
        else:
            found[f"place.{size}_s"] = Figure(value=round(full_ms / 1000, 3), unit="s", target="<= 5")
        for what in ("leaves", "joins", "quiet"):
            value = statistics.median(getattr(each, f"{what}_ms") for each in seen)
            found[f"place.{size}.{what}_ms"] = Figure(value=round(value, 1), unit="ms", target="<= 300")
        written = seen[-1].shards_written / seen[-1].shards
        found[f"place.{size}.leaves.shards_written_share"] = Figure(value=round(written, 4), unit="of shards")
    share = moved_share(registered(5_000, seed=26), 26)
    found["moved_share"] = Figure(value=round(share, 5), unit="of placements", target=f"<= {1.3 / 26:.4f}")
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = figures()
    conditions = {size: f"{each[0]} adapters, {each[1]} replicas, seed {each[0]}" for size, each in SIZES.items()}
    write_report("placement", found, conditions=conditions)
    for name, figure in found.items():
        print(f"{name}: {figure}")


if __name__ == "__main__":
    main()
