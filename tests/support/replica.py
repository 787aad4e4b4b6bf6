"""A replica on the memory bus with a store in a folder, and a gateway that remembers what it hears."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from services.replica_worker.app import Replica
from services.replica_worker.assembly import Outside
from services.replica_worker.control.merging import MergePlan
from services.replica_worker.core.frames import FrameBook
from services.replica_worker.core.residency import ResidencyLog
from services.replica_worker.engine.port import Engine
from services.replica_worker.engine.timed.engine import TimedEngine
from services.replica_worker.engine.timed.policy import TimedPolicy
from services.replica_worker.io.disk import DiskFiles
from services.replica_worker.reporting.metering import Meters
from services.replica_worker.reporting.residency import ResidencyTeller
from services.replica_worker.requests.frame_sender import FrameSender
from services.replica_worker.settings import Settings
from services.replica_worker.standing import Identity
from services.replica_worker.text.tokenizer import Tokenizer
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.contracts.catalog import ADAPTER, ANSWER, CANCEL, FRAME, GENERATE
from shared.messages.desired import AdapterRecord
from shared.messages.generation import (
    Accepted,
    Answer,
    Cancel,
    Cancelled,
    ChatMessage,
    Finish,
    Frame,
    GenerateRequest,
    Refused,
    Sampling,
    TokenChunk,
)
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from shared.runtime.tracing import NO_TRACER, Tracer
from shared.store.file import FileStore
from shared.store.port import weights_key
from tests.support.counting_store import CountingStore

BASE_HASH = "ba5e" * 16
REPLICA_ID = "replica-1"
DEADLINE_S = 60.0


class Heard:
    """What came back for one request."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.chunks: list[TokenChunk] = []

    @property
    def accepted(self) -> Accepted | None:
        return next((each for each in self.answers if isinstance(each, Accepted)), None)

    @property
    def refused(self) -> Refused | None:
        return next((each for each in self.answers if isinstance(each, Refused)), None)

    @property
    def finish(self) -> Finish | None:
        return next((chunk.finish for chunk in self.chunks if chunk.finish), None)

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token for chunk in self.chunks for token in chunk.token_ids)

    @property
    def over(self) -> bool:
        return self.refused is not None or self.finish is not None


def refused(heard: Heard) -> Refused:
    """Its refusal, and no token before it."""
    assert heard.refused is not None
    assert heard.chunks == []
    return heard.refused


class Caller:
    """One gateway."""

    def __init__(self, bus: MemoryBus, gateway_id: str) -> None:
        self.gateway_id = gateway_id
        self.bus = bus
        self.frames: list[Frame] = []
        self._heard: dict[str, Heard] = defaultdict(Heard)
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        await self.bus.subscribe(ANSWER, self._on_answer, self.gateway_id)
        await self.bus.subscribe(FRAME, self._on_frame, self.gateway_id)

    async def send(self, request: GenerateRequest) -> Heard:
        answer_to = ANSWER.subject(self.gateway_id, request.request_id)
        await self.bus.publish(GENERATE, request, REPLICA_ID, answer_to=answer_to)
        return self._heard[request.request_id]

    async def run(self, request: GenerateRequest) -> Heard:
        """Send it and wait for its end."""
        heard = await self.send(request)
        await self.wait(lambda: heard.over)
        return heard

    async def cancel(self, request_id: str) -> Cancelled:
        cancel = Cancel(gateway_id=self.gateway_id, request_id=request_id)
        return await self.bus.ask(CANCEL, cancel, REPLICA_ID, timeout_s=DEADLINE_S)

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S), self._news:
            await self._news.wait_for(condition)

    async def _on_answer(self, answer: Answer, ids: tuple[str, ...]) -> None:
        self._heard[answer.request_id].answers.append(answer)
        await self._tell()

    async def _on_frame(self, frame: Frame, ids: tuple[str, ...]) -> None:
        self.frames.append(frame)
        for chunk in frame.chunks:
            self._heard[chunk.request_id].chunks.append(chunk)
        await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


class Rig:
    """Everything around one replica. `engine` may be any; time stands still unless `clock` is advanced."""

    def __init__(self, folder: Path, model_folder: Path, settings: Settings, engine: Engine, base_hash: str) -> None:
        self.folder = folder
        self.settings = settings
        self.engine = engine
        self.base_hash = base_hash
        self.broker = MemoryBroker()
        self.clock = ManualClock()
        self.store = CountingStore(FileStore(folder / "store"))
        self.bus = self.broker.connect("replica_worker")
        self.registry = self.broker.connect("registry")
        self.placement = self.broker.connect("placement")
        self.caller = Caller(self.broker.connect("gateway"), "gateway-1")
        self.tokenizer = Tokenizer.from_folder(model_folder)
        self.stop_asked = asyncio.Event()
        self.merge: MergePlan | None = None
        self.tracer: Tracer = NO_TRACER
        self.loaded: list[tuple[str, int]] = []
        """Why it was not ready, and how many rows its engine had taken, whenever it was told that all is loaded."""
        self.replica = self._build("first")

    def _build(self, incarnation: str) -> Replica:
        identity = Identity(
            replica_id=REPLICA_ID,
            incarnation=incarnation,
            pool_id=self.pool_id,
            base_model_hash=self.base_hash,
        )
        self.frames = FrameSender(self.bus, FrameBook(REPLICA_ID, incarnation), self.clock)
        told = ResidencyLog(REPLICA_ID, incarnation, identity.pool_id)
        self.residency = ResidencyTeller(self.bus, told, self.clock)
        self.metrics = Metrics("replica_worker")
        self.meters = Meters(self.metrics)
        outside = Outside(
            identity=identity,
            bus=self.bus,
            clock=self.clock,
            engine=self.engine,
            tokenizer=self.tokenizer,
            files=DiskFiles(self.cache),
            store=self.store,
            frames=self.frames,
            residency=self.residency,
            meters=self.meters,
            ask_to_stop=self.stop_asked.set,
            on_loaded=lambda: self.loaded.append((self.replica.standing.not_ready, self.engine.load_figures().running)),
            merge=self.merge,
            tracer=self.tracer,
        )
        return Replica(self.settings, outside)

    def trace_with(self, tracer: Tracer) -> None:
        """Before the start."""
        self.tracer = tracer
        self.replica = self._build("first")

    def merge_in(self, plan: MergePlan) -> None:
        """Before the start: what the engine's weights are to hold."""
        self.merge = plan
        self.replica = self._build("merged")

    @property
    def pool_id(self) -> str:
        merged = None if self.merge is None else self.merge.record.digest
        return pool_id(self.base_hash, self.settings.rank_limit, merged)

    @property
    def cache(self) -> Path:
        return self.settings.cache_folder

    def cached(self, record: AdapterRecord) -> Path:
        return self.cache / f"{record.digest}.safetensors"

    def stored(self, record: AdapterRecord) -> Path:
        return self.folder / "store" / record.store_key

    async def start(self) -> None:
        await self.residency.start()
        await self.replica.start()
        await self.caller.listen()

    async def stop(self) -> None:
        await self.replica.stop()
        await self.residency.stop()

    async def restart_after_kill(self, engine: Engine) -> None:
        """A new process on what a killed one left: nothing of the old one is told that it ends."""
        await self.replica.close()
        await self.residency.stop()
        self.engine = engine
        self.replica = self._build("second")
        await self.residency.start()
        await self.replica.start()

    async def register(self, adapter_id: str, content: bytes | None = None, **changes: Any) -> AdapterRecord:
        """Store an adapter's file and tell the fleet of it, as the registry does."""
        record = await self.keep(adapter_id, content, **changes)
        await self.tell(record)
        return record

    async def keep(self, adapter_id: str, content: bytes | None = None, **changes: Any) -> AdapterRecord:
        """Store an adapter's file, and tell nobody."""
        content = adapter_id.encode() * 64 if content is None else content
        digest = hashlib.sha256(content).hexdigest()

        async def chunks() -> AsyncIterator[bytes]:
            yield content

        await self.store.put(weights_key(digest), chunks(), digest)
        record = AdapterRecord(
            adapter_id=adapter_id,
            digest=digest,
            tenant_id="acme",
            version="1",
            pool_id=pool_id(self.base_hash, self.settings.rank_limit),
            base_model_hash=self.base_hash,
            rank=8,
            alpha=16.0,
            target_modules=("q_proj",),
            size_bytes=len(content),
            store_key=weights_key(digest),
            status="active",
        )
        return msgspec.structs.replace(record, **changes)

    async def tell(self, record: AdapterRecord) -> None:
        await self.registry.state(ADAPTER).put(record, key_of(record.adapter_id))

    def request(self, request_id: str, record: AdapterRecord | None = None, **changes: Any) -> GenerateRequest:
        sampling = Sampling(seed=7, max_tokens=changes.pop("max_tokens", 6), stop=changes.pop("stop", ()))
        request = GenerateRequest(
            request_id=request_id,
            gateway_id=self.caller.gateway_id,
            tenant_id="acme",
            pool_id=self.pool_id,
            base_model_hash=self.base_hash,
            messages=(ChatMessage(role="user", content="hello"),),
            sampling=sampling,
            adapter_id=None if record is None else record.adapter_id,
            digest=None if record is None else record.digest,
        )
        return msgspec.structs.replace(request, **changes)

    async def until(self, condition: Callable[[], bool]) -> None:
        """For what nobody tells: look after every turn of the loop."""
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - there is no event: that is the point
                await asyncio.sleep(0)

    async def settled(self) -> None:
        """Once no request is open and no load is under way, not even one that nobody waits for any more."""
        loader = self.replica.loader
        async with asyncio.timeout(DEADLINE_S):
            await self.replica.generation.idle()
            await loader.demand.calm()
        await self.until(lambda: not (loader.slots.settling or loader.slots.table.references))
        await self.until(lambda: not (loader.ram.budget.busy or loader.disk.budget.busy or self.store.open_reads))

    def assert_sound(self) -> None:
        """What must be true whenever no request is open."""
        loader = self.replica.loader
        assert self.store.open_reads == 0
        assert loader.slots.table.references == 0
        assert self.replica.reporter.report().tokens_in_flight == 0
        for table in (loader.slots.table, loader.ram.budget, loader.disk.budget):
            assert list(table.broken_invariants()) == []


@asynccontextmanager
async def rig(
    folder: Path, model_folder: Path, *, engine: Engine | None = None, base_hash: str = BASE_HASH, **settings: Any
) -> AsyncIterator[Rig]:
    """A started replica (unless `start` is False) over the timed engine, or over `engine`. To see what proofs cost, set
    `replica.loader.slots.proving` to False: every load is taken for right then."""
    start = settings.pop("start", True)
    given = {"slots": 4, "ram_budget_bytes": 1 << 20, "disk_budget_bytes": 1 << 20, **settings}
    own = Settings(
        replica_id=REPLICA_ID, model_folder=model_folder, store_url="file:///unused",
        cache_folder=folder / "cache", engine="timed", **given,
    )  # fmt: skip
    built = Rig(folder, model_folder, own, engine or timed(own.slots, base_hash), base_hash)
    if start:
        await built.start()
    try:
        yield built
    finally:
        await built.stop()


def timed(slots: int = 4, base_hash: str = BASE_HASH) -> TimedEngine:
    return TimedEngine(TimedPolicy.instant(base_hash, slots=slots))
