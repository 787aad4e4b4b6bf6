"""A whole registry on a bus, with placement and replicas that answer as a test wants them to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from services.registry.__main__ import Assembly, assemble
from services.registry.io.database import Database
from services.registry.io.schema import METADATA
from services.registry.settings import Settings
from shared.bus.port import Bus, Ids
from shared.contracts import catalog
from shared.contracts.channel import Service
from shared.messages.adapters import AdapterRegistered
from shared.messages.completions import CaseOutput, CasePrompt, Complete, Completed
from shared.messages.effects import AdapterEffect
from shared.messages.operations import (
    AskFingerprint,
    AskFleet,
    AskOwners,
    EvaluateAdapter,
    Evaluation,
    Fingerprint,
    FleetView,
    HoldResult,
    LoadAdapter,
    Owners,
    ReplicaSummary,
)
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.metrics import Metrics
from tests.support.adapter_files import BASE, Recipe, announcement, file_of, write_folder
from tests.support.registry_watch import eventually
from tests.support.sqlite_file import lay_migrated

ADMIN_KEY = "an-admin-key-for-tests"
Connect = Callable[[str], Awaitable[Bus]]
"""A bus for a service by its name."""


def settings(folder: Path, **changes: Any) -> Settings:
    said: dict[str, Any] = {
        "admin_key": ADMIN_KEY,
        "database_url": f"sqlite+aiosqlite:///{folder}/registry.db",
        "store_url": (folder / "store").as_uri(),
        "weights_prefixes": ((folder / "inbox").as_uri(),),
        "evaluation_retry_s": 0.01,
        "deadline_sweep_s": 0.05,
        "outbox_retry_s": 0.01,
    }
    return Settings(**{**said, **changes})


class World:
    """A registry that runs; `admin` speaks to it over HTTP with the admin key."""

    def __init__(self, folder: Path, connect: Connect, assembly: Assembly) -> None:
        self.folder = folder
        self.connect = connect
        self.registry = assembly.registry
        self.door = assembly.door
        transport = httpx.ASGITransport(app=assembly.door, raise_app_exceptions=False)
        self.admin = httpx.AsyncClient(
            transport=transport, base_url="http://registry", headers={"authorization": f"Bearer {ADMIN_KEY}"}
        )

    async def prepare(self) -> None:
        """The base model and the tenant that announcements name."""
        base = await self.admin.put(f"/internal/base-models/{BASE.base_model_hash}", json=msgspec.to_builtins(BASE))
        tenant = await self.admin.post("/internal/tenants", json={"tenant_id": "acme"})
        assert (base.status_code, tenant.status_code) == (201, 201)

    def announce(self, adapter_id: str = "acme-support-1", *, seed: int = 0, **changes: Any) -> AdapterRegistered:
        """A right PEFT folder in the inbox, and the announcement for it."""
        file = file_of(Recipe(seed=seed))
        announced = announcement(file, adapter_id=adapter_id, **changes)
        return write_folder(self.folder / "inbox" / adapter_id, file, announced)

    async def post(self, announced: AdapterRegistered) -> httpx.Response:
        return await self.admin.post("/internal/adapters", json=msgspec.to_builtins(announced))

    async def status(self, adapter_id: str) -> str | None:
        answer = await self.admin.get(f"/internal/adapters/{adapter_id}")
        return answer.json()["status"] if answer.status_code == 200 else None

    async def reached(self, adapter_id: str, status: str) -> dict[str, Any]:
        """The adapter once it is there."""
        await eventually(lambda: self._is(adapter_id, status))
        found: dict[str, Any] = (await self.admin.get(f"/internal/adapters/{adapter_id}")).json()
        return found

    async def activated(self, adapter_id: str, *, seed: int = 0, **changes: Any) -> AdapterRegistered:
        """Register an adapter and wait until replicas have found it good, and its alias means it."""
        announced = self.announce(adapter_id, seed=seed, **changes)
        assert (await self.post(announced)).status_code == 201
        await self.reached(adapter_id, "active")
        if announced.alias is not None:
            await eventually(lambda: self.means(str(announced.alias), adapter_id))
        return announced

    async def means(self, alias: str, adapter_id: str) -> bool:
        answer = await self.admin.get(f"/internal/aliases/{alias}")
        return answer.status_code == 200 and answer.json()["adapter_id"] == adapter_id

    async def _is(self, adapter_id: str, status: str) -> bool:
        return await self.status(adapter_id) == status


async def everything_in(database: Database) -> str:
    """Every row of every table, as text."""
    async with database.read() as connection:
        rows = [row for table in METADATA.sorted_tables for row in await connection.execute(table.select())]
    return "\n".join(map(str, rows))


@asynccontextmanager
async def world(folder: Path, connect: Connect, *, clock: Clock | None = None, **changes: Any) -> AsyncIterator[World]:
    """Everything of the registry but the listening socket; parts stop in reverse order."""
    bus, said = await connect(Service.REGISTRY.value), settings(folder, **changes)
    await lay_migrated(said.database_url)
    assembly = assemble(said, bus, clock or SystemClock(), Metrics("registry"))
    started = []
    try:
        for part in assembly.parts:
            await part.start()
            started.append(part)
        here = World(folder, connect, assembly)
        async with here.admin:
            yield here
    finally:
        for part in reversed(started):
            await part.stop()
        await bus.close()


class FakePlacement:
    """Says which replicas are ready, and who of them owns an adapter (all, unless said otherwise)."""

    def __init__(self, pool_id: str, replica_ids: tuple[str, ...] = (), owners: tuple[str, ...] = ()) -> None:
        self.pool_id = pool_id
        self.replica_ids = replica_ids
        self.owners = owners or replica_ids
        self.trouble: str | None = None
        self.summaries: tuple[ReplicaSummary, ...] = ()
        """Instead of `replica_ids`, if there are any: replicas of several pools."""

    async def serve(self, bus: Bus) -> None:
        await bus.serve(catalog.FLEET, self._fleet)
        await bus.serve(catalog.OWNERS, self._owners)

    async def _fleet(self, question: AskFleet, ids: Ids) -> FleetView:
        if self.trouble is not None:
            raise RuntimeError(self.trouble)
        own = tuple(summary(name, self.pool_id) for name in self.replica_ids)
        return FleetView(epoch=1, replicas=self.summaries or own)

    async def _owners(self, question: AskOwners, ids: Ids) -> Owners:
        return Owners(replica_ids=self.owners, reason="as the test says")


EFFECT = AdapterEffect(engine="fake-1/none", token_ids=(9, 4), logprobs=(-0.5, -1.0), shift=0.5, slot_digest="f1")


Says = Callable[[str | None, CasePrompt], str]
"""What an adapter, or the base model (None), answers to a prompt."""


class FakeReplica:
    """Answers evaluations with `passed`, or raises `trouble`; `asked` holds what it was asked. Loads come to nothing
    for the reason `load_trouble`, if there is one; `loaded` holds what it was asked to load. Prompts of evaluation
    sets, which `questions` holds, are answered by `says`."""

    def __init__(self, replica_id: str) -> None:
        self.replica_id = replica_id
        self.passed = True
        self.reason = "outputs are finite and differ from the base"
        self.trouble: str | None = None
        self.asked: list[EvaluateAdapter] = []
        self.load_trouble: str | None = None
        self.loaded: list[LoadAdapter] = []
        self.slot_digest = EFFECT.slot_digest
        self.finite = True
        self.says: Says = lambda adapter_id, prompt: f"{adapter_id or 'base'} says {prompt.case}"
        self.questions: list[Complete] = []
        self.probe_trouble: str | None = None

    async def serve(self, bus: Bus) -> None:
        await bus.serve(catalog.EVALUATE, self._evaluate, self.replica_id)
        await bus.serve(catalog.LOAD, self.load, self.replica_id)
        await bus.serve(catalog.FINGERPRINT, self._fingerprint, self.replica_id)
        await bus.serve(catalog.COMPLETE, self._complete, self.replica_id)

    async def load(self, order: LoadAdapter, ids: Ids) -> HoldResult:
        self.loaded.append(order)
        ok, tier = self.load_trouble is None, order.tier if self.load_trouble is None else "remote"
        return HoldResult(adapter_id=order.adapter_id, ok=ok, tier=tier, reason=self.load_trouble or "resident")

    async def _fingerprint(self, question: AskFingerprint, ids: Ids) -> Fingerprint:
        if self.probe_trouble is not None:
            raise RuntimeError(self.probe_trouble)
        return Fingerprint(
            adapter_id=question.adapter_id, digest=question.digest, replica_id=self.replica_id,
            fingerprint=f"{EFFECT.engine}/{self.slot_digest}", engine_build="fake-1",
            effect=msgspec.structs.replace(EFFECT, slot_digest=self.slot_digest),
        )  # fmt: skip

    async def _complete(self, question: Complete, ids: Ids) -> Completed:
        self.questions.append(question)
        adapter_id = question.record.adapter_id if question.record else None
        return Completed(
            replica_id=self.replica_id,
            outputs=tuple(output(prompt, self.says(adapter_id, prompt)) for prompt in question.prompts),
        )

    async def _evaluate(self, question: EvaluateAdapter, ids: Ids) -> Evaluation:
        self.asked.append(question)
        if self.trouble is not None:
            raise RuntimeError(self.trouble)
        return Evaluation(
            adapter_id=question.record.adapter_id,
            digest=question.record.digest,
            replica_id=self.replica_id,
            passed=self.passed,
            reason=self.reason,
            fingerprint="f1",
            effects=(EFFECT,) if self.passed else (),
            engine_build="fake-1",
            largest_logprob_change=0.5,
            finite=self.finite,
        )


def output(prompt: CasePrompt, text: str) -> CaseOutput:
    """A text that begins with "error: " is none: what follows says why."""
    found, _, error = text.partition("error: ")
    return CaseOutput(case=prompt.case, text=found, tokens=len(found.split()), finish="stop", error=error)


def summary(replica_id: str, pool_id: str, **changes: Any) -> ReplicaSummary:
    said: dict[str, Any] = {
        "replica_id": replica_id, "pool_id": pool_id, "ready": True, "draining": False, "reason": "", "slots": 4,
        "running": 0, "queue_depth": 0, "tokens_in_flight": 0, "assigned": 0, "gpu": 0, "ram": 0, "disk": 0,
    }  # fmt: skip
    return ReplicaSummary(**{**said, **changes})
