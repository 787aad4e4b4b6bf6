"""The parts of one replica that its requests and operations are run with."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.replica_worker.control.records import RecordBook
from services.replica_worker.core.capacity import Capacity
from services.replica_worker.core.margin import Margin
from services.replica_worker.core.row_pace import RowPace
from services.replica_worker.core.tokens import Promises, Rate
from services.replica_worker.engine.watch import EngineWatch
from services.replica_worker.reporting.metering import Meters
from services.replica_worker.requests.frame_sender import FrameSender
from services.replica_worker.standing import Identity, Standing
from services.replica_worker.text.tokenizer import Tokenizer
from services.replica_worker.tiers.effect import Effects
from services.replica_worker.tiers.loader import Loader
from shared.bus.port import Bus
from shared.runtime.clock import Clock
from shared.runtime.tracing import Tracer


@dataclass(frozen=True, kw_only=True)
class Means:
    identity: Identity
    standing: Standing
    bus: Bus
    clock: Clock
    watch: EngineWatch
    tokenizer: Tokenizer
    loader: Loader
    effects: Effects
    records: RecordBook
    frames: FrameSender
    meters: Meters
    promises: Promises
    rate: Rate
    capacity: Capacity
    tracer: Tracer
    queue_limit: int
    max_rows: int
    row_pace: RowPace = field(default_factory=RowPace)
    margin: Margin = field(default_factory=Margin)
