"""`python -m services.replica_worker` as a process of its own, on a real NATS, with the real engine."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.base_model import base_model_hash
from shared.bus.nats import connect
from shared.bus.port import Bus
from shared.contracts.catalog import ADAPTER, ANSWER, ASSIGNMENT, EVALUATE, FRAME, GENERATE, REPLICA_REPORT, STATE
from shared.messages.desired import AdapterRecord, AssignedAdapter, AssignmentShard
from shared.messages.generation import (
    Accepted,
    Answer,
    ChatMessage,
    Frame,
    GenerateRequest,
    Refused,
    Sampling,
    TokenChunk,
)
from shared.messages.identity import key_of
from shared.messages.operations import AskState, EvaluateAdapter, ReplicaState
from shared.messages.pools import pool_id
from shared.messages.reports import ReplicaReport
from shared.store.port import weights_key
from tests.support.nats_server import NatsServer, nats_server
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.tiny_model import tiny_model_once

REPLICA_ID = "replica-1"
DEADLINE_S = 60.0


class Bench:
    """A bus, a store and one worker process; `gateway` hears what comes back."""

    def __init__(self, folder: Path, model: Path, server: NatsServer) -> None:
        self.folder = folder
        self.model = model
        self.server = server
        self.base_hash = base_model_hash(model)
        self.pool_id = pool_id(self.base_hash, 16)
        self.process: asyncio.subprocess.Process | None = None
        self.reports: list[ReplicaReport] = []
        self.answers: list[Answer] = []
        self.chunks: list[TokenChunk] = []
        self.news = asyncio.Condition()

    async def open(self) -> None:
        self.registry: Bus = await connect(self.server.options("registry"))
        self.placement: Bus = await connect(self.server.options("placement"))
        self.gateway: Bus = await connect(self.server.options("gateway"))
        await self.gateway.subscribe(REPLICA_REPORT, self._on_report)
        await self.gateway.subscribe(ANSWER, self._on_answer, "gateway-1")
        await self.gateway.subscribe(FRAME, self._on_frame, "gateway-1")

    async def close(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        for bus in (self.registry, self.placement, self.gateway):
            await bus.close()

    async def start(self, engine: str = "torch", **changes: str) -> None:
        options = self.server.options("replica_worker")
        settings = {
            "REPLICA_ID": REPLICA_ID,
            "MODEL_FOLDER": str(self.model),
            "STORE_URL": (self.folder / "store").as_uri(),
            "CACHE_FOLDER": str(self.folder / "cache"),
            "NATS_URL": options.url,
            "NATS_USER": options.user,
            "NATS_PASSWORD": options.password,
            "ENGINE": engine,
            "SLOTS": "4",
            "MAX_CONTEXT_TOKENS": "512",
            "DTYPE": "float32",
            "THREADS": "1",
            **changes,
        }
        env = {**os.environ, **{f"LORAFLEET_WORKER_{name}": value for name, value in settings.items()}}
        with (self.folder / "worker.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.replica_worker", env=env, stdout=log, stderr=log
            )

    async def ready(self) -> ReplicaReport:
        """The first report of a replica that serves, of the process that runs now."""
        before = {report.incarnation for report in self.reports}
        await self.wait(lambda: any(r.ready and r.incarnation not in before for r in self.reports))
        return next(r for r in self.reports if r.ready and r.incarnation not in before)

    async def wait(self, condition) -> None:  # type: ignore[no-untyped-def]
        try:
            async with asyncio.timeout(DEADLINE_S), self.news:
                await self.news.wait_for(condition)
        except TimeoutError:
            pytest.fail(f"waited in vain; the worker says: {(self.folder / 'worker.log').read_text()[-3000:]}")

    async def register(self, seed: int) -> AdapterRecord:
        path, spec = write_adapter(self.folder, RandomAdapter(seed=seed), self.base_hash)
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        place = self.folder / "store" / weights_key(digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        record = AdapterRecord(
            adapter_id=spec.adapter_id,
            digest=digest,
            tenant_id="acme",
            version="1",
            pool_id=self.pool_id,
            base_model_hash=self.base_hash,
            rank=spec.rank,
            alpha=spec.alpha,
            target_modules=spec.target_modules,
            size_bytes=len(content),
            store_key=weights_key(digest),
            status="active",
        )
        await self.registry.state(ADAPTER).put(record, key_of(record.adapter_id))
        return record

    async def run(self, request_id: str, record: AdapterRecord | None, max_tokens: int = 8) -> tuple[Answer, str]:
        """The last answer and the whole text of one greedy request."""
        request = GenerateRequest(
            request_id=request_id,
            gateway_id="gateway-1",
            tenant_id="acme",
            pool_id=self.pool_id,
            base_model_hash=self.base_hash,
            messages=(ChatMessage(role="user", content="Hello"),),
            sampling=Sampling(seed=1, max_tokens=max_tokens, temperature=0.0),
            adapter_id=None if record is None else record.adapter_id,
            digest=None if record is None else record.digest,
        )
        answer_to = ANSWER.subject("gateway-1", request_id)
        await self.gateway.publish(GENERATE, request, REPLICA_ID, answer_to=answer_to)
        await self.wait(lambda: self._over(request_id))
        answer = [each for each in self.answers if each.request_id == request_id][-1]
        return answer, str([each.token_ids for each in self.chunks if each.request_id == request_id])

    async def state(self) -> ReplicaState:
        return await self.registry.ask(STATE, AskState(), REPLICA_ID, timeout_s=10)

    def _over(self, request_id: str) -> bool:
        refused = any(isinstance(a, Refused) and a.request_id == request_id for a in self.answers)
        return refused or any(c.finish is not None and c.request_id == request_id for c in self.chunks)

    async def _on_report(self, report: ReplicaReport, ids: tuple[str, ...]) -> None:
        self.reports.append(report)
        await self._tell()

    async def _on_answer(self, answer: Answer, ids: tuple[str, ...]) -> None:
        self.answers.append(answer)
        await self._tell()

    async def _on_frame(self, frame: Frame, ids: tuple[str, ...]) -> None:
        self.chunks.extend(frame.chunks)
        await self._tell()

    async def _tell(self) -> None:
        async with self.news:
            self.news.notify_all()


@asynccontextmanager
async def bench(folder: Path, model: Path) -> AsyncIterator[Bench]:
    async with nats_server(folder / "nats") as server:
        built = Bench(folder, model, server)
        await built.open()
        try:
            yield built
        finally:
            await built.close()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


async def test_a_worker_process_serves_drains_and_ends(tmp_path: Path, model: Path) -> None:
    async with bench(tmp_path, model) as here:
        await here.start()
        report = await here.ready()
        assert (report.pool_id, report.slots, report.engine) == (here.pool_id, 4, "torch")
        records = [await here.register(seed) for seed in range(1, 4)]
        texts = []
        for at, record in enumerate([*records, None]):
            answer, text = await here.run(f"r{at}", record)
            assert isinstance(answer, Accepted), answer
            texts.append(text)
        assert len(set(texts)) == 4
        answer, again = await here.run("again", records[0])
        assert isinstance(answer, Accepted)
        assert (answer.tier, again) == ("gpu", texts[0])

        evaluation = await here.registry.ask(EVALUATE, EvaluateAdapter(record=records[0]), REPLICA_ID, timeout_s=30)
        assert (evaluation.passed, evaluation.reason) == (True, "finite, and differs from the base")
        assert evaluation.fingerprint.startswith(f"{evaluation.engine_build}/float32/")

        assert here.process is not None
        here.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            assert await here.process.wait() == 0
        assert here.reports[-1].draining


async def test_c33_a_worker_that_is_killed_comes_back_and_rewarms_from_its_disk(tmp_path: Path, model: Path) -> None:
    async with bench(tmp_path, model) as here:
        records = [await here.register(seed) for seed in range(1, 4)]
        adapters = tuple(
            AssignedAdapter(adapter_id=record.adapter_id, digest=record.digest, role="owner", tier=tier)
            for record, tier in zip(records, ("gpu", "ram", "disk"), strict=True)
        )
        shard = AssignmentShard(
            replica_id=REPLICA_ID, pool_id=here.pool_id, epoch=3, shard=0, shards=1, adapters=adapters
        )
        await here.placement.state(ASSIGNMENT).put(shard, REPLICA_ID, "0")
        await here.start()
        await here.ready()
        await here.wait(lambda: here.reports[-1].assignment_epoch == 3 and here.reports[-1].loads_per_min == 1.0)
        before = await here.run("before", records[0])
        assert here.process is not None
        here.process.kill()
        await here.process.wait()
        for record in records:
            (tmp_path / "store" / record.store_key).unlink()

        await here.start()
        await here.ready()
        await here.wait(lambda: here.reports[-1].loads_per_min == 1.0)
        state = await here.state()
        assert state.gpu_adapters == ("adapter-1",)
        assert set(state.disk_adapters) == {"adapter-1", "adapter-2", "adapter-3"}
        assert (await here.run("after", records[0]))[1] == before[1]
        answer, _ = await here.run("from-disk", records[2])
        assert isinstance(answer, Accepted)
        assert answer.tier == "disk"


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("SLOTZ", "4", "did you mean LORAFLEET_WORKER_SLOTS?"),
        ("MODEL_FOLDER", "/nowhere", "MODEL_FOLDER holds no base model"),
    ],
)
async def test_a_wrong_setting_is_one_sentence_and_exit_code_2(
    tmp_path: Path, model: Path, name: str, value: str, sentence: str
) -> None:
    settings = {"REPLICA_ID": "r", "MODEL_FOLDER": str(model), "STORE_URL": "file:///x", "CACHE_FOLDER": str(tmp_path)}
    env = {**os.environ, **{f"LORAFLEET_WORKER_{key}": each for key, each in {**settings, name: value}.items()}}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.replica_worker", env=env, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(DEADLINE_S):
        _, said = await process.communicate()
    assert process.returncode == 2
    assert sentence in said.decode()
    assert said.decode().count("\n") == 1
