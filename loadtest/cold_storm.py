"""What a storm of first requests for cold adapters does to one replica, and what pre-warming leaves of it.

With the figures of fleet A and in virtual time, so that minutes take seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from loadtest.cold_replica import DEADLINE_S, REPLICA_ID, SCALE, Client, Peaks, cold_replica, registered
from loadtest.measures import quantile
from loadtest.one_replica import Ask, Told
from loadtest.throttled_store import ThrottledStore
from loadtest.virtual_time import run_virtually
from shared.messages.desired import AdapterRecord, AssignedAdapter, AssignmentShard
from shared.runtime import logs


class StormLoad(msgspec.Struct, frozen=True, kw_only=True):
    """`requests` that all come at once, spread evenly over `adapters` that nobody has asked for yet. With `patient`
    clients whoever is refused comes again when it was told to, until it is let in."""

    requests: int = 1_000
    adapters: int = 1_000
    patient: bool = True


class StormFigures(msgspec.Struct, frozen=True, kw_only=True):
    requests: int
    admitted: int
    refused: int
    """At their first try."""
    failed: int
    """Of all that were admitted, at any try."""
    longest_retry_after_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_max_s: float
    """Of those that were admitted at their first try."""
    last_first_token_s: float
    """When the last of all had its first token."""
    tries: int
    most_waiting: int
    most_fetches_at_once: int
    fetches: int
    most_ram_bytes: int
    most_disk_bytes: int


class WarmFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of requests to a replica that has just started with nothing on its disk."""

    requests: int
    warm_share: float
    """Found their adapter in a slot, in RAM or on disk."""
    ttft_p50_s: float
    ttft_p95_s: float
    refused: int


async def storm(folder: Path, model_folder: Path, load: StormLoad) -> StormFigures:
    async with cold_replica(folder, model_folder) as (replica, store):
        records = await registered(replica, load.adapters)
        peaks, draw = Peaks(replica), random.Random(1)
        watching = asyncio.create_task(peaks.watch())
        clients = [
            Client(replica, f"c{at}", records[at % load.adapters], draw, patient=load.patient)
            for at in range(load.requests)
        ]
        tries = await asyncio.gather(*(client.run() for client in clients))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return storm_figures(tries, peaks, store)


def storm_figures(tries: Sequence[Sequence[Told]], peaks: Peaks, store: ThrottledStore) -> StormFigures:
    first = [each[0] for each in tries]
    admitted = [told for told in first if told.failure != "overloaded"]
    waits_s = [told.ttft_s or 0.0 for told in admitted]
    every = [told for each in tries for told in each]
    return StormFigures(
        requests=len(first),
        admitted=len(admitted),
        refused=len(first) - len(admitted),
        failed=sum(bool(told.failure) for told in every if told.failure != "overloaded"),
        longest_retry_after_s=max((told.retry_after_s or 0.0 for told in every), default=0.0),
        ttft_p50_s=quantile(waits_s, 0.5),
        ttft_p95_s=quantile(waits_s, 0.95),
        ttft_max_s=max(waits_s),
        last_first_token_s=max(told.first_at_s or 0.0 for told in every),
        tries=len(every),
        most_waiting=peaks.waiting,
        most_fetches_at_once=store.most_at_once,
        fetches=len(store.reads),
        most_ram_bytes=peaks.ram_bytes * SCALE,
        most_disk_bytes=peaks.disk_bytes * SCALE,
    )


class WarmLoad(msgspec.Struct, frozen=True, kw_only=True):
    """`requests` at `requests_per_s` (Poisson) over adapters of Zipf popularity, `head_start_s` after the start."""

    adapters: int = 1_000
    requests: int = 300
    requests_per_s: float = 2.0
    skew: float = 1.2
    head_start_s: float = 40.0


async def restarted(folder: Path, model_folder: Path, load: WarmLoad, *, with_heat: bool) -> WarmFigures:
    """Its adapters are assigned; `with_heat` it is told which of them are busy."""
    draw = random.Random(2)
    async with cold_replica(folder, model_folder) as (replica, _):
        records = await registered(replica, load.adapters)
        draw.shuffle(records)  # so that neither names nor the order of arrival say who is busy
        await replica.assign(assignment(records, with_heat=with_heat))
        await replica.clock.sleep_s(load.head_start_s)
        weights = [1.0 / rank**load.skew for rank in range(1, len(records) + 1)]
        sent: list[Told] = []
        for at, record in enumerate(draw.choices(records, weights, k=load.requests)):
            await replica.clock.sleep_s(draw.expovariate(load.requests_per_s))
            ask = Ask(
                request_id=f"r{at}", tenant_id=record.adapter_id, max_tokens=64, record=record, deadline_s=DEADLINE_S
            )
            sent.append(await replica.send(ask))
        await asyncio.gather(*(told.over.wait() for told in sent))
    served = [told for told in sent if told.ttft_s is not None]
    waits_s = [told.ttft_s or 0.0 for told in served]
    return WarmFigures(
        requests=len(sent),
        warm_share=sum(told.tier in ("gpu", "ram", "disk") for told in served) / len(sent),
        ttft_p50_s=quantile(waits_s, 0.5),
        ttft_p95_s=quantile(waits_s, 0.95),
        refused=len(sent) - len(served),
    )


def assignment(records: Sequence[AdapterRecord], *, with_heat: bool) -> AssignmentShard:
    """The first of `records` is the busiest, and the assignment in the order of names, as placement writes it."""
    busiest = len(records).bit_length()
    adapters = tuple(
        AssignedAdapter(
            adapter_id=record.adapter_id,
            digest=record.digest,
            role="owner",
            tier="ram",
            heat=busiest - (at + 1).bit_length() if with_heat else 0,
        )
        for at, record in sorted(enumerate(records), key=lambda each: each[1].adapter_id)
    )
    return AssignmentShard(
        replica_id=REPLICA_ID, pool_id=records[0].pool_id, epoch=1, shard=0, shards=1, adapters=adapters
    )


def _lines(title: str, figures: msgspec.Struct) -> str:
    shown = (f"  {name:<24} {value:,.10g}" for name, value in msgspec.structs.asdict(figures).items())
    return "\n".join((title, *shown))


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m loadtest.cold_storm", description="A storm of cold first requests.")
    words.add_argument("--model", type=Path, required=True, help="a base model's folder: only its tokenizer is read")
    model_folder: Path = words.parse_args().model
    logs.configure("cold_storm", REPLICA_ID, level="ERROR")
    with tempfile.TemporaryDirectory(prefix="lorafleet-storm-") as name:
        folder, load = Path(name), WarmLoad()
        figures = run_virtually(storm(folder / "storm", model_folder, StormLoad()))
        print(_lines("1,000 first requests at once, one replica, nothing on its disk", figures))
        for title, with_heat in (("in the order of names", False), ("the busiest first", True)):
            warm = run_virtually(restarted(folder / title, model_folder, load, with_heat=with_heat))
            print(_lines(f"Zipf traffic {load.head_start_s:g} s after a start with an empty disk, {title}", warm))


if __name__ == "__main__":
    main()
