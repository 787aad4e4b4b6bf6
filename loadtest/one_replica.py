"""One replica without a network around it: an engine, the worker on a bus in memory, and a client that takes times."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from services.replica_worker.app import Replica
from services.replica_worker.assembly import Outside
from services.replica_worker.core.frames import FrameBook
from services.replica_worker.core.residency import ResidencyLog
from services.replica_worker.engine.port import AdapterSpec, Engine
from services.replica_worker.io.disk import DiskFiles
from services.replica_worker.reporting.metering import Meters
from services.replica_worker.reporting.residency import ResidencyTeller
from services.replica_worker.requests.frame_sender import FrameSender
from services.replica_worker.settings import Settings
from services.replica_worker.standing import Identity
from services.replica_worker.text.tokenizer import Tokenizer
from shared.bus.memory import MemoryBroker
from shared.contracts.catalog import ADAPTER, ANSWER, ASSIGNMENT, CANCEL, FRAME, GATEWAY_REPORT, GENERATE, TENANT
from shared.messages.desired import AdapterRecord, AssignmentShard, TenantRecord
from shared.messages.generation import Accepted, Answer, Cancel, ChatMessage, Frame, GenerateRequest, Refused, Sampling
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from shared.messages.reports import GatewayReport
from shared.runtime.clock import Clock
from shared.runtime.metrics import Metrics
from shared.store.file import FileStore
from shared.store.port import ObjectStore, weights_key

TICK_S, LEASE_S = 0.1, 1.0


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Without a record it is for the base model."""

    request_id: str
    tenant_id: str
    max_tokens: int
    record: AdapterRecord | None = None
    prompt: str = "hello"
    deadline_s: float = 600.0


@dataclass
class Told:
    """What one client saw. Times are the clock's; None: it has not come to that."""

    ask: Ask
    sent_at_s: float
    tier: str = ""
    first_at_s: float | None = None
    last_at_s: float | None = None
    longest_gap_s: float = 0.0
    """Between two tokens of its answer."""
    ended_at_s: float | None = None
    tokens: int = 0
    failure: str = ""
    retry_after_s: float | None = None
    """Of a refusal."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_at_s is None else self.first_at_s - self.sent_at_s

    @property
    def tpot_s(self) -> float | None:
        """On average between two tokens."""
        if self.first_at_s is None or self.last_at_s is None or self.tokens < 2:
            return None
        return (self.last_at_s - self.first_at_s) / (self.tokens - 1)

    def hear(self, now_s: float) -> None:
        """A token has come."""
        if self.last_at_s is not None:
            self.longest_gap_s = max(self.longest_gap_s, now_s - self.last_at_s)
        self.first_at_s = now_s if self.first_at_s is None else self.first_at_s
        self.last_at_s = now_s


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How the replica is set up. The folder holds its store and its cache."""

    folder: Path
    model_folder: Path
    base_model_hash: str
    settings: dict[str, int]
    """`slots`, `max_rows` and other whole numbers of the worker's settings."""
    replica_id: str = "replica-1"


@dataclass(frozen=True, kw_only=True)
class Around:
    """What replicas can share."""

    broker: MemoryBroker
    store: ObjectStore


class OneReplica:
    """Alone on a bus and a store of its own, a folder, unless it is given something else `around` it."""

    def __init__(self, plan: Plan, engine: Engine, clock: Clock, around: Around | None = None) -> None:
        self.clock = clock
        self._replica_id, self._gateway_id = plan.replica_id, f"gateway-of-{plan.replica_id}"
        self.folder = plan.folder
        self._pool = pool_id(plan.base_model_hash, 16)
        self._base_hash = plan.base_model_hash
        settings = Settings(
            replica_id=plan.replica_id,
            model_folder=plan.model_folder,
            store_url="file:///unused",
            cache_folder=plan.folder / "cache",
            **plan.settings,  # type: ignore[arg-type]
        )
        around = around or Around(broker=MemoryBroker(), store=FileStore(plan.folder / "store"))
        broker = around.broker
        bus = broker.connect("replica_worker")
        self._gateway, self._registry = broker.connect("gateway"), broker.connect("registry")
        self._placement = broker.connect("placement")
        self._store = around.store
        self._residency = ResidencyTeller(bus, ResidencyLog(plan.replica_id, "first", self._pool), clock)
        identity = Identity(
            replica_id=plan.replica_id, incarnation="first", pool_id=self._pool, base_model_hash=self._base_hash
        )
        outside = Outside(
            identity=identity,
            bus=bus,
            clock=clock,
            engine=engine,
            tokenizer=Tokenizer.from_folder(plan.model_folder),
            files=DiskFiles(settings.cache_folder),
            store=self._store,
            frames=FrameSender(bus, FrameBook(plan.replica_id, "first"), clock),
            residency=self._residency,
            meters=Meters(Metrics("replica_worker")),
            ask_to_stop=lambda: None,
        )
        self.replica = Replica(settings, outside)
        self._told: dict[str, Told] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[OneReplica]:
        """Started, and kept going in the background until the end of the block."""
        async with AsyncExitStack() as ends:
            for part in (self._residency, self.replica):
                await part.start()
                ends.push_async_callback(part.stop)
            ends.push_async_callback((await self._gateway.subscribe(ANSWER, self._on_answer, self._gateway_id)).close)
            ends.push_async_callback((await self._gateway.subscribe(FRAME, self._on_frame, self._gateway_id)).close)
            for every_s, do in ((TICK_S, self.replica.tick), (LEASE_S, self._renew)):
                task = asyncio.create_task(self._again_and_again(every_s, do))
                ends.push_async_callback(_ended, task)
            yield self

    async def weigh(self, tenant_id: str, weight: float) -> None:
        await self._registry.state(TENANT).put(TenantRecord(tenant_id=tenant_id, weight=weight), tenant_id)

    async def register(self, path: Path, spec: AdapterSpec) -> AdapterRecord:
        """Put an adapter's file into the store and tell the replica of it."""
        return await self.register_bytes(await asyncio.to_thread(path.read_bytes), spec)

    async def register_bytes(self, content: bytes, spec: AdapterSpec) -> AdapterRecord:
        digest = hashlib.sha256(content).hexdigest()

        async def chunks() -> AsyncIterator[bytes]:
            yield content

        await self._store.put(weights_key(digest), chunks(), digest)
        record = AdapterRecord(
            adapter_id=spec.adapter_id,
            digest=digest,
            tenant_id="acme",
            version="1",
            pool_id=self._pool,
            base_model_hash=self._base_hash,
            rank=spec.rank,
            alpha=spec.alpha,
            target_modules=spec.target_modules,
            size_bytes=len(content),
            store_key=weights_key(digest),
            status="active",
        )
        await self.tell(record)
        return record

    async def tell(self, record: AdapterRecord) -> None:
        """What the registry says of an adapter."""
        await self._registry.state(ADAPTER).put(record, key_of(record.adapter_id))

    async def assign(self, shard: AssignmentShard) -> None:
        """What placement would have it hold."""
        await self._placement.state(ASSIGNMENT).put(shard, self._replica_id, str(shard.shard))

    async def send(self, ask: Ask) -> Told:
        told = self._told[ask.request_id] = Told(ask, self.clock.now_s())
        request = GenerateRequest(
            request_id=ask.request_id,
            gateway_id=self._gateway_id,
            tenant_id=ask.tenant_id,
            pool_id=self._pool,
            base_model_hash=self._base_hash,
            messages=(ChatMessage(role="user", content=ask.prompt),),
            sampling=Sampling(seed=7, max_tokens=ask.max_tokens),
            adapter_id=None if ask.record is None else ask.record.adapter_id,
            digest=None if ask.record is None else ask.record.digest,
            deadline_s=ask.deadline_s,
        )
        answer_to = ANSWER.subject(self._gateway_id, ask.request_id)
        await self._gateway.publish(GENERATE, request, self._replica_id, answer_to=answer_to)
        return told

    async def run(self, ask: Ask) -> Told:
        """Send it and wait for its end."""
        told = await self.send(ask)
        await told.over.wait()
        return told

    async def cancel(self, request_id: str) -> None:
        cancel = Cancel(gateway_id=self._gateway_id, request_id=request_id)
        cancelled = await self._gateway.ask(CANCEL, cancel, self._replica_id, timeout_s=10.0)
        if cancelled.found:  # before it was accepted there is no stream that could say so
            self._end(self._told[request_id], "cancelled")

    async def _on_answer(self, answer: Answer, ids: tuple[str, ...]) -> None:
        told = self._told[answer.request_id]
        match answer:
            case Accepted():
                told.tier = answer.tier
            case Refused():
                told.retry_after_s = answer.retry_after_s
                self._end(told, answer.code)

    async def _on_frame(self, frame: Frame, ids: tuple[str, ...]) -> None:
        now_s = self.clock.now_s()
        for chunk in frame.chunks:
            told = self._told[chunk.request_id]
            told.tokens += len(chunk.token_ids)
            if chunk.token_ids:
                told.hear(now_s)
            if chunk.finish is not None:
                self._end(told, chunk.finish.error or ("cancelled" if chunk.finish.reason == "cancelled" else ""))

    def _end(self, told: Told, failure: str) -> None:
        told.ended_at_s, told.failure = self.clock.now_s(), failure
        told.over.set()

    async def _renew(self) -> None:
        report = GatewayReport(gateway_id=self._gateway_id, sequence=1, streams=0, requests=0, refused=0, tokens=0)
        await self._gateway.publish(GATEWAY_REPORT, report, self._gateway_id)

    async def _again_and_again(self, every_s: float, do: Callable[[], Awaitable[None]]) -> None:
        while True:
            await do()
            await self.clock.sleep_s(every_s)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
