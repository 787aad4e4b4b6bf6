"""The parts of one replica that its requests and operations are run with."""

from __future__ import annotations

from dataclasses import dataclass

from services.replica_worker.core.tokens import Promises, Rate
from services.replica_worker.effect import EffectProof
from services.replica_worker.engine_watch import EngineWatch
from services.replica_worker.frame_sender import FrameSender
from services.replica_worker.loader import Loader
from services.replica_worker.metering import Meters
from services.replica_worker.records import RecordBook
from services.replica_worker.standing import Identity, Standing
from services.replica_worker.text.tokenizer import Tokenizer
from shared.bus.port import Bus
from shared.runtime.clock import Clock


@dataclass(frozen=True, kw_only=True)
class Means:
    identity: Identity
    standing: Standing
    bus: Bus
    clock: Clock
    watch: EngineWatch
    tokenizer: Tokenizer
    loader: Loader
    proof: EffectProof
    records: RecordBook
    frames: FrameSender
    meters: Meters
    promises: Promises
    rate: Rate
    queue_limit: int
