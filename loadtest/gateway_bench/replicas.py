"""Several replicas in one process, each a replica of its own on the bus: forty processes would not fit this machine.

    python -m loadtest.gateway_bench.replicas PLAN

PLAN is a file with a `Plan` as JSON, which names the login of workers. Ends at SIGTERM.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop

from loadtest.gateway_bench.saying import SayingReplica
from loadtest.gateway_bench.stamps import Arrivals, StampedFrames
from loadtest.gateway_bench.stepping import OverlappingEngine, QuickEngine, SteppedEngine
from services.replica_worker.__main__ import parts_of
from services.replica_worker.app import Replica
from services.replica_worker.assembly import Outside
from services.replica_worker.core.frames import FrameBook
from services.replica_worker.core.residency import ResidencyLog
from services.replica_worker.engine.timed.policy import TimedPolicy
from services.replica_worker.io.disk import DiskFiles
from services.replica_worker.reporting.metering import Meters
from services.replica_worker.reporting.residency import ResidencyTeller
from services.replica_worker.requests.frame_sender import FrameSender
from services.replica_worker.settings import Settings
from services.replica_worker.standing import Identity
from services.replica_worker.text.tokenizer import Tokenizer
from shared.bus.nats import BusOptions, connect
from shared.bus.port import Bus
from shared.messages.pools import pool_id
from shared.runtime import logs
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.metrics import Metrics
from shared.runtime.service import Part, periodically, run_until_stopped
from shared.store.open import store_from_url

RANK_LIMIT = 16


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`policy` None: replicas that only say what they are asked for. `stamped`: their tokens are moments,
    and their steps end at those of a grid."""

    nats_url: str
    nats_user: str
    nats_password: str
    replica_ids: tuple[str, ...]
    base_model_hash: str
    model_folder: str
    store_url: str
    cache_folder: str
    policy: TimedPolicy | None = None
    ram_budget_bytes: int = 1 << 30
    disk_budget_bytes: int = 8 << 30
    queue_limit: int = 256
    stamped: bool = True

    @property
    def pool_id(self) -> str:
        return pool_id(self.base_model_hash, RANK_LIMIT)


class _NoProbe:
    """Nobody asks these replicas for metrics."""

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return


def saying_parts(plan: Plan, name: str, bus: Bus, clock: Clock) -> list[Part]:
    frames = FrameSender(bus, FrameBook(name, f"{name}-1"), clock)
    replica = SayingReplica(bus, frames, plan.pool_id)
    return [replica, periodically(clock, 1.0, replica.report), periodically(clock, 0.5, replica.beat)]


def timed_parts(plan: Plan, name: str, bus: Bus, tokenizer: Tokenizer) -> list[Part]:
    """A whole worker, but for its probe."""
    clock, incarnation = SystemClock(), f"{name}-1"
    arrivals = Arrivals(bus)
    book, policy = FrameBook(name, incarnation), plan.policy
    assert policy is not None, "whoever only says things is another"
    settings = Settings(
        replica_id=name, model_folder=Path(plan.model_folder), store_url=plan.store_url,
        cache_folder=Path(plan.cache_folder, name), slots=policy.slots, rank_limit=policy.rank_limit,
        max_rows=policy.max_rows, max_context_tokens=policy.max_context_tokens, queue_limit=plan.queue_limit,
        ram_budget_bytes=plan.ram_budget_bytes, disk_budget_bytes=plan.disk_budget_bytes, engine="timed",
    )  # fmt: skip
    outside = Outside(
        identity=Identity(
            replica_id=name, incarnation=incarnation, pool_id=plan.pool_id, base_model_hash=plan.base_model_hash
        ),
        bus=arrivals if plan.stamped else bus,
        clock=clock,
        engine=_engine(plan, policy, name),
        tokenizer=tokenizer,
        files=DiskFiles(settings.cache_folder),
        store=store_from_url(plan.store_url, settings),
        frames=StampedFrames(arrivals, bus, book, clock) if plan.stamped else FrameSender(bus, book, clock),
        residency=ResidencyTeller(bus, ResidencyLog(name, incarnation, plan.pool_id), clock),
        meters=Meters(Metrics("replica_worker")),
        ask_to_stop=lambda: None,
    )
    return parts_of(Replica(settings, outside), outside, _NoProbe())


def _engine(plan: Plan, policy: TimedPolicy, name: str) -> QuickEngine:
    if not plan.stamped:
        return OverlappingEngine(policy)
    return SteppedEngine(policy, plan.replica_ids.index(name) / len(plan.replica_ids))


async def serve(plan: Plan) -> None:
    clock, tokenizer = SystemClock(), Tokenizer.from_folder(Path(plan.model_folder))
    buses, parts = [], []
    for name in plan.replica_ids:
        bus = await connect(
            BusOptions(url=plan.nats_url, user=plan.nats_user, password=plan.nats_password, client_name=name)
        )
        buses.append(bus)
        if plan.policy is None:
            parts += saying_parts(plan, name, bus, clock)
        else:
            parts += timed_parts(plan, name, bus, tokenizer)
    try:
        await run_until_stopped("replicas", parts)
    finally:
        await asyncio.gather(*(bus.close() for bus in buses))


def main() -> None:
    logs.configure("replica_worker", "replicas")
    uvloop.run(serve(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))


if __name__ == "__main__":
    main()
