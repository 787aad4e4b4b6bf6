"""One workload and a few short probes on a staged fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from loadtest.calibration import ways
from loadtest.calibration.asking import Asker
from loadtest.calibration.gateway_log import read_log, with_log
from loadtest.calibration.hops import Hop, measure_hops
from loadtest.calibration.restarting import measure_restart
from loadtest.calibration.seen import Ask, Seen
from loadtest.calibration.stage import Stage
from loadtest.calibration.traffic import (
    ALONE_TOKENS,
    BESIDE,
    FROM_RAM,
    Tokenizing,
    asks,
    beside_others,
    each_once,
    learn_tokenizing,
    one_by_one,
    volley,
)
from loadtest.calibration.ways import FirstTokens
from loadtest.workloads.shape import Bursts, Lengths, LogNormal, TrafficShape, Zipf

HOP_ROUNDS = 6
VOLLEYS, BESIDE_EACH = 8, 4
"""Of each run; the latter of each kind."""
_LOG_S = 0.5
"""Until the gateway's last lines are in its log."""


class FleetFailed(RuntimeError):
    """It did not answer as it must; the text says what came instead."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the calibration's workload; before it, requests that each had the fleet `alone`, `volleys` of several
    at one moment, and questions, the last of each, `beside` long answers. `first_tokens` are what the workers counted
    during the workload. `from_ram`: what `climb` saw at a fleet alike with few slots."""

    alone: list[Seen]
    seen: list[Seen]
    first_tokens: FirstTokens
    volleys: list[list[Seen]] = []
    beside: list[list[Seen]] = []
    from_ram: list[Seen] = []


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """`bus_s`: a message's way. `restart_s`: how long a replica is gone that was killed."""

    hops: list[Hop]
    bus_s: float
    restart_s: float


def calibration_traffic(customers: int, rate_per_s: float, for_s: float) -> TrafficShape:
    """Clumps of requests of all lengths: steps with few rows and with many, with prompts and without."""
    lengths = Lengths(prompt=LogNormal(mean=120, cv=0.8, cap=600), output=LogNormal(mean=40, cv=0.6, cap=120))
    return TrafficShape(
        customers=customers, rate_per_s=rate_per_s, for_s=for_s, seed=1, popularity=Zipf(s=1.0),
        arrivals=Bursts(cv=2.0), lengths=lengths,
    )  # fmt: skip


async def ask_all(stage: Stage, asker: Asker, asked: Sequence[Ask]) -> list[Seen]:
    """What requests saw, with what the gateway's log adds."""
    seen = await asker.run(asked)
    await asyncio.sleep(_LOG_S)
    return with_log(seen, read_log(stage.gateway_log))


async def run_once(stage: Stage, shape: TrafficShape, name: str) -> Run:
    """`name` is this run's alone. Raises FleetFailed."""
    asker = Asker(stage.fleet.connection.url)
    try:
        tokenizing = await learn_tokenizing(asker, stage.customers[0], f"{name}-tokenizing")
        await ask_all(stage, asker, each_once(stage.customers, f"{name}-first"))
        singles = [[ask] for ask in one_by_one(stage.customers, tokenizing, f"{name}-alone")]
        alone = [each for some in await _one_by_one(stage, asker, singles) for each in some]
        volleys = [volley(stage.customers, tokenizing, f"{name}-volley-{at}") for at in range(VOLLEYS)]
        beside = _beside(stage, tokenizing, name)
        in_company = await _one_by_one(stage, asker, volleys + beside)
        before = await ways.first_tokens(stage.metrics_ports)
        seen = await ask_all(stage, asker, asks(shape, stage.customers, tokenizing, name))
        after = await ways.first_tokens(stage.metrics_ports)
    finally:
        asker.close()
    everybody = [*alone, *seen, *(each for some in in_company for each in some)]
    if failed := [each.outcome for each in everybody if each.outcome != "ok"]:
        raise FleetFailed(f"{len(failed)} of {len(everybody)} requests failed: {failed[0]}")
    return Run(
        alone=alone, seen=seen, first_tokens=after.since(before), volleys=in_company[:VOLLEYS],
        beside=in_company[VOLLEYS:],
    )  # fmt: skip


async def climb(stage: Stage, name: str) -> list[Seen]:
    """Short questions to one customer after the other of a fleet with fewer slots than customers. `name` is this run's
    alone."""
    asker = Asker(stage.fleet.connection.url)
    try:
        tokenizing = await learn_tokenizing(asker, stage.customers[0], f"{name}-tokenizing")
        short = one_by_one(stage.customers, tokenizing, name, ALONE_TOKENS[:1] * FROM_RAM)
        return [each for some in await _one_by_one(stage, asker, [[ask] for ask in short]) for each in some]
    finally:
        asker.close()


def _beside(stage: Stage, tokenizing: Tokenizing, name: str) -> list[list[Ask]]:
    return [
        beside_others(stage.customers, tokenizing, f"{name}-beside-{at}", tokens, others)
        for at, (tokens, others) in enumerate(BESIDE * BESIDE_EACH)
    ]


async def _one_by_one(stage: Stage, asker: Asker, asked: Sequence[Sequence[Ask]]) -> list[list[Seen]]:
    """None of `asked` begins before the last answer of the one before it has come. Times are since each one's own
    beginning."""
    seen = [await asker.run(some) for some in asked]
    await asyncio.sleep(_LOG_S)
    log = read_log(stage.gateway_log)
    return [with_log(some, log) for some in seen]


async def probe(stage: Stage) -> Probed:
    """Raises HopFailed. At its end one replica has been killed, and is back."""
    async with stage.admin() as admin:
        hops = await measure_hops(admin, stage.shape.replica_ids, stage.spare, HOP_ROUNDS)
    return Probed(
        hops=hops,
        bus_s=await ways.bus_s(stage.fleet.connection.nats_url),
        restart_s=await measure_restart(stage, stage.shape.replica_ids[0]),
    )
