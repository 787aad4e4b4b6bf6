"""What it costs to have twice as many adapters in use as there are slots: `thrash_ttft_ratio`.

The same requests come at the same times, once for as many adapters as fit into the slots and once for twice as
many. An open loop: nobody waits for an answer before the next request is sent, so a replica that falls behind
cannot slow its clients down and look well.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from loadtest.measures import quantile
from loadtest.one_replica import Ask, OneReplica, Plan, Told
from loadtest.report import Figure
from services.replica_worker.engine.port import AdapterSpec, Engine
from shared.messages.desired import AdapterRecord
from shared.runtime.clock import Clock, SystemClock

TARGET = "<= 2"


class ThrashLoad(msgspec.Struct, frozen=True, kw_only=True):
    """`requests` at `requests_per_s` on average (Poisson), each for one adapter of those in use, all alike in
    popularity: the least friendly mix there is."""

    requests: int
    requests_per_s: float
    max_tokens: int
    prompt: str = "hello"
    seed: int = 1


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the two runs saw."""

    median_ttft_s: float
    p95_ttft_s: float
    median_tpot_s: float
    longest_gap_s: float
    """Between two tokens of one answer."""
    loads_per_min: float
    resident_share: float
    """How many found their adapter in a slot as they came."""
    failed: int


async def measure(
    engine_factory: Callable[[], Engine],
    adapters: Sequence[tuple[Path, AdapterSpec]],
    plan: Plan,
    load: ThrashLoad,
    clock: Clock | None = None,
) -> dict[str, Figure]:
    """Runs both phases, each on a new engine; `adapters` are twice as many as the plan's slots.

    Every adapter is used once before the clock counts, so that both phases begin with all of them in RAM. Raises
    ValueError for too few adapters.
    """
    slots = plan.settings["slots"]
    if len(adapters) < 2 * slots:
        raise ValueError(f"{2 * slots} adapters are needed for {slots} slots, not {len(adapters)}")
    phases = {}
    for name, count in (("in_cache", slots), ("thrash", 2 * slots)):
        folder = plan.folder / name
        own = msgspec.structs.replace(plan, folder=folder)
        async with OneReplica(own, engine_factory(), clock or SystemClock()).running() as replica:
            records = [await replica.register(*adapter) for adapter in adapters[:count]]
            phases[name] = await _phase(replica, records, load)
    return _figures(phases["in_cache"], phases["thrash"], load)


async def _phase(replica: OneReplica, records: Sequence[AdapterRecord], load: ThrashLoad) -> Phase:
    for at, record in enumerate(records):
        await replica.run(_ask(f"warm-{at}", record, msgspec.structs.replace(load, max_tokens=1)))
    draw = random.Random(load.seed)
    sent: list[Told] = []
    turnover, began_at_s = replica.replica.loader.slots.table.turnover, replica.clock.now_s()
    loads_before = turnover.loads
    for at in range(load.requests):
        await replica.clock.sleep_s(draw.expovariate(load.requests_per_s))
        # One draw for both phases: request n is for the same share of the adapters in use.
        record = records[int(draw.random() * len(records))]
        sent.append(await replica.send(_ask(f"r{at}", record, load)))
    await asyncio.gather(*(told.over.wait() for told in sent))
    minutes = (replica.clock.now_s() - began_at_s) / 60
    waits_s = [told.ttft_s for told in sent if told.ttft_s is not None and not told.failure]
    if not waits_s:
        raise ValueError(f"no request succeeded; the first failure: {sent[0].failure}")
    return Phase(
        median_ttft_s=quantile(waits_s, 0.5),
        p95_ttft_s=quantile(waits_s, 0.95),
        median_tpot_s=quantile([told.tpot_s or 0.0 for told in sent if not told.failure], 0.5),
        longest_gap_s=max(told.longest_gap_s for told in sent),
        loads_per_min=(turnover.loads - loads_before) / minutes,
        resident_share=sum(told.tier == "gpu" for told in sent) / len(sent),
        failed=len(sent) - len(waits_s),
    )


def _ask(request_id: str, record: AdapterRecord, load: ThrashLoad) -> Ask:
    return Ask(
        request_id=request_id,
        tenant_id=record.adapter_id,
        max_tokens=load.max_tokens,
        record=record,
        prompt=load.prompt,
    )


def _figures(in_cache: Phase, thrash: Phase, load: ThrashLoad) -> dict[str, Figure]:
    figures = {
        "thrash_ttft_ratio": Figure(value=thrash.median_ttft_s / in_cache.median_ttft_s, unit="", target=TARGET),
        "thrash_requests_per_s": Figure(value=load.requests_per_s, unit="1/s"),
        "thrash_failed": Figure(value=in_cache.failed + thrash.failed, unit="", target="<= 0"),
    }
    for name, phase in (("in_cache", in_cache), ("thrash", thrash)):
        figures[f"{name}_ttft_p50"] = Figure(value=phase.median_ttft_s * 1000, unit="ms")
        figures[f"{name}_ttft_p95"] = Figure(value=phase.p95_ttft_s * 1000, unit="ms")
        figures[f"{name}_tpot_p50"] = Figure(value=phase.median_tpot_s * 1000, unit="ms")
        figures[f"{name}_longest_gap"] = Figure(value=phase.longest_gap_s, unit="s")
        figures[f"{name}_loads_per_min"] = Figure(value=phase.loads_per_min, unit="1/min")
        figures[f"{name}_resident_share"] = Figure(value=phase.resident_share, unit="")
    return figures
