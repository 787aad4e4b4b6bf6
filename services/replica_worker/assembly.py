"""How the inner parts of a replica hang together. What touches the world is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.replica_worker.control.merging import MergePlan
from services.replica_worker.control.records import RecordBook
from services.replica_worker.core.capacity import Capacity
from services.replica_worker.core.slots import SlotTable
from services.replica_worker.core.tiers import ByteBudget
from services.replica_worker.core.tokens import Promises, Rate
from services.replica_worker.engine.port import Engine
from services.replica_worker.engine.watch import EngineWatch
from services.replica_worker.io.disk import DiskFiles
from services.replica_worker.means import Means
from services.replica_worker.reporting.metering import Meters
from services.replica_worker.reporting.residency import ResidencyTeller
from services.replica_worker.requests.frame_sender import FrameSender
from services.replica_worker.settings import Settings
from services.replica_worker.standing import Identity, Standing
from services.replica_worker.text.tokenizer import Tokenizer
from services.replica_worker.tiers.disk import DiskTier
from services.replica_worker.tiers.effect import Effects
from services.replica_worker.tiers.errors import EffectWrong
from services.replica_worker.tiers.ground import Ground
from services.replica_worker.tiers.loader import Loader
from services.replica_worker.tiers.ram import RamTier
from services.replica_worker.tiers.slot_queue import SlotQueue
from services.replica_worker.tiers.slots import SlotTier
from shared.bus.port import Bus
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey
from shared.runtime.clock import Clock
from shared.runtime.tracing import NO_TRACER, Tracer
from shared.store.port import ObjectStore


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What a replica is given: everything that touches the world."""

    identity: Identity
    bus: Bus
    clock: Clock
    engine: Engine
    tokenizer: Tokenizer
    files: DiskFiles
    store: ObjectStore
    frames: FrameSender
    residency: ResidencyTeller
    meters: Meters
    ask_to_stop: Callable[[], None]
    """Ends the process in an orderly way."""
    on_loaded: Callable[[], None] = lambda: None
    """The engine, its model and the records are there, and stay; nobody is served yet."""
    merge: MergePlan | None = None
    """What is merged into the weights that `engine` starts with."""
    tracer: Tracer = NO_TRACER


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Who is told of an adapter that came to a tier or left one, of a broken engine, of a slot that does not do
    what it should, of stored bytes that are gone or wrong."""

    on_change: Callable[[AdapterKey], None]
    on_failure: Callable[[str], None]
    on_mismatch: Callable[[AdapterRecord, EffectWrong], Awaitable[None]]
    on_lost: Callable[[AdapterRecord, str, str], None]


def assemble(settings: Settings, outside: Outside, standing: Standing, hooks: Hooks) -> Means:
    records = RecordBook(hooks.on_change)
    watch = EngineWatch(outside.engine, hooks.on_failure)
    loader = _loader(settings, outside, watch, records, hooks)
    return Means(
        identity=outside.identity,
        standing=standing,
        bus=outside.bus,
        clock=outside.clock,
        watch=watch,
        tokenizer=outside.tokenizer,
        loader=loader,
        effects=loader.slots.effects,
        records=records,
        frames=outside.frames,
        meters=outside.meters,
        promises=Promises(),
        rate=Rate(),
        capacity=Capacity(),
        tracer=outside.tracer,
        queue_limit=settings.queue_limit,
        max_rows=settings.max_rows,
    )


def _loader(settings: Settings, outside: Outside, watch: EngineWatch, records: RecordBook, hooks: Hooks) -> Loader:
    def on_file(digest: str) -> None:
        for key in records.keys_of(digest):
            hooks.on_change(key)

    def on_outcome(outcome: str) -> None:
        outside.meters.proofs.labels(outcome).inc()

    ground = Ground(
        engine=outside.engine,
        clock=outside.clock,
        on_change=hooks.on_change,
        on_outcome=on_outcome,
        on_mismatch=hooks.on_mismatch,
        on_lost=hooks.on_lost,
    )
    disk_budget: ByteBudget[str] = ByteBudget(settings.disk_budget_bytes)
    ram_budget: ByteBudget[AdapterKey] = ByteBudget(settings.ram_budget_bytes)
    disk = DiskTier(outside.files, outside.store, disk_budget, outside.clock, on_file)
    ram = RamTier(ground, disk, ram_budget)
    table = SlotTable(settings.slots if outside.merge is None else 0)
    slots = SlotTier(ground, ram, table, Effects(watch, ram, on_outcome))
    return Loader(outside.identity.base_model_hash, disk, ram, SlotQueue(ground, ram, slots), ground)
