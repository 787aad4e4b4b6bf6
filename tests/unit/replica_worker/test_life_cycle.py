"""What a replica needs for an adapter, what comes before its engine is up, and what nobody wants any more."""

from __future__ import annotations

import asyncio
import io
import shutil
import socket
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from services.replica_worker.engine.port import EngineInfo, OnStep
from services.replica_worker.engine.timed.policy import TimedPolicy
from services.replica_worker.io.disk import DiskFiles, DiskRefused
from shared.bus.port import NoResponders
from shared.contracts.catalog import COMPLETE, EVALUATE, LOAD, REPLICA_REPORT
from shared.messages.completions import CasePrompt, Complete
from shared.messages.desired import AdapterRecord
from shared.messages.generation import ChatMessage
from shared.messages.operations import EvaluateAdapter, LoadAdapter
from shared.messages.reports import ReplicaReport
from tests.support.replica import BASE_HASH, REPLICA_ID, Rig, rig
from tests.support.replica_operations import assign, load, tier, unload
from tests.support.unruly_engine import UnrulyEngine


def prompt(record: AdapterRecord) -> Complete:
    said = ChatMessage(role="user", content="hello")
    return Complete(base_model_hash=BASE_HASH, record=record, prompts=(CasePrompt(case=0, messages=(said,)),))


async def test_c29_loads_and_evaluations_touch_the_adapters_files_and_nothing_of_the_base(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    whole_open = io.open

    def watched(file: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(file, (str, Path)):
            opened.append(Path(file))
        return whole_open(file, *rest, **named)

    def no_route(*anything: Any) -> NoReturn:
        raise OSError("planted: there is no route to anywhere")

    base = Path(shutil.copytree(model_folder, tmp_path / "base"))
    async with rig(tmp_path, base) as replica:
        await asyncio.to_thread(base.rename, tmp_path / "away")
        monkeypatch.setattr(socket.socket, "connect", no_route)
        monkeypatch.setattr(socket, "getaddrinfo", no_route)
        monkeypatch.setattr(io, "open", watched)
        candidate, record = await replica.keep("candidate", status="evaluating"), await replica.register("acme-1")
        assert (await load(replica, record)).ok
        ask = EvaluateAdapter(record=candidate)
        assert (await replica.registry.ask(EVALUATE, ask, REPLICA_ID, timeout_s=20)).passed
        completed = await replica.registry.ask(COMPLETE, prompt(candidate), REPLICA_ID, timeout_s=20)
        assert completed.outputs[0].error == ""
        assert (await replica.caller.run(replica.request("r1", record))).finish is not None
        monkeypatch.undo()
        digests = {candidate.digest, record.digest}
        assert {path.parent for path in opened} >= {replica.cache}
        assert {path.name.split(".")[0] for path in opened if replica.cache in path.parents} == digests
        assert all(replica.cache in path.parents or tmp_path / "store" in path.parents for path in opened)


class SlowToStart(UnrulyEngine):
    """Starts once it is let."""

    def __init__(self) -> None:
        super().__init__(TimedPolicy.instant(BASE_HASH, slots=4))
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def start(self, on_step: OnStep) -> EngineInfo:
        self.asked.set()
        await self.let.wait()
        return await super().start(on_step)


async def test_c39_what_is_deployed_while_the_engine_starts_is_served_when_it_is_up(
    tmp_path: Path, model_folder: Path
) -> None:
    engine = SlowToStart()
    reports: list[ReplicaReport] = []

    async def on_report(report: ReplicaReport, ids: tuple[str, ...]) -> None:
        reports.append(report)

    async with rig(tmp_path, model_folder, engine=engine, start=False) as replica:
        await replica.placement.subscribe(REPLICA_REPORT, on_report)
        starting = asyncio.create_task(replica.start())
        await engine.asked.wait()
        await replica.replica.reporter.send()
        await assign(replica, (record := await replica.register("acme-1"), "gpu"))
        for channel, ask in (
            (LOAD, LoadAdapter(adapter_id=record.adapter_id, digest=record.digest)),
            (EVALUATE, EvaluateAdapter(record=record)),
            (COMPLETE, prompt(record)),
        ):
            with pytest.raises(NoResponders):
                await replica.registry.ask(channel, ask, REPLICA_ID, timeout_s=5)  # type: ignore[arg-type]
        engine.let.set()
        await starting
        await replica.until(lambda: replica.replica.loader.tier_of(record.key) == "gpu")
        heard = await replica.caller.run(replica.request("r1", record))
        assert heard.accepted is not None
        assert heard.accepted.tier == "gpu"
        assert (await load(replica, record)).ok
        assert (await replica.registry.ask(EVALUATE, EvaluateAdapter(record=record), REPLICA_ID, timeout_s=5)).passed
    assert (reports[0].ready, reports[0].reason) == (False, "the engine is starting")


async def test_its_process_is_told_once_that_all_is_loaded_before_anybody_is_served(replica: Rig) -> None:
    assert replica.loaded == [("the engine is starting", 0)]


async def test_an_adapter_that_nobody_wants_leaves_once_it_is_idle_and_is_served_when_it_is_asked_for(
    replica: Rig, engine: UnrulyEngine
) -> None:
    record = await replica.register("acme-1")
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", record))
    await replica.caller.wait(lambda: heard.accepted is not None)
    await replica.tell(msgspec.structs.replace(record, wanted=False))
    await replica.replica.convergence.stir_now_and_then()
    await asyncio.sleep(0)
    assert tier(replica, record) == "gpu"
    engine.go()
    await replica.caller.wait(lambda: heard.over)
    await replica.replica.convergence.stir_now_and_then()
    await replica.until(lambda: tier(replica, record) == "remote" and not replica.cached(record).exists())
    again = await replica.caller.run(replica.request("r2", record))
    assert again.accepted is not None
    assert (again.accepted.tier, again.token_ids) == ("remote", heard.token_ids)


async def test_an_adapter_that_nobody_wants_stays_as_long_as_it_is_assigned(replica: Rig) -> None:
    record = await replica.register("acme-1", wanted=False)
    await assign(replica, (record, "gpu"))
    await replica.until(lambda: tier(replica, record) == "gpu")
    await replica.replica.convergence.stir_now_and_then()
    assert replica.replica.convergence.plan().actions == ()
    await assign(replica)
    await replica.until(lambda: tier(replica, record) == "remote")


async def test_what_an_operator_has_loaded_stays_for_the_time_that_the_answer_names(replica: Rig) -> None:
    record = await replica.register("acme-1", wanted=False)
    told = await load(replica, record, "ram")
    assert (told.ok, told.tier) == (True, "ram")
    assert told.reason.endswith("nobody else wants it, so it may leave after 60 s")
    await replica.clock.advance(59.0)
    assert replica.replica.convergence.plan().actions == ()
    await replica.clock.advance(1.5)
    await replica.replica.convergence.stir_now_and_then()
    await replica.until(lambda: tier(replica, record) == "remote")


async def test_what_was_loaded_for_a_deployment_leaves_once_nobody_wants_it_any_more(replica: Rig) -> None:
    """The order to load may come before the word that somebody wants it."""
    record = await replica.register("acme-1", wanted=False)
    assert (await load(replica, record, "ram")).ok
    await replica.tell(wanted := msgspec.structs.replace(record, wanted=True))
    assert (await load(replica, wanted, "ram")).reason == "resident where it was wanted"
    await replica.tell(record)
    await replica.until(lambda: tier(replica, record) == "remote")


async def test_an_operator_can_unload_what_was_loaded_and_nothing_loads_what_is_retired(replica: Rig) -> None:
    record = await replica.register("acme-1", wanted=False)
    assert (await load(replica, record, "ram")).ok
    assert (await unload(replica, record)).tier == "remote"
    assert (await load(replica, record, "ram")).ok
    await replica.tell(retired := msgspec.structs.replace(record, status="retired"))
    await replica.until(lambda: tier(replica, record) == "remote")
    told = await load(replica, retired)
    assert (told.ok, told.reason) == (False, "acme-1 is retired: nothing may ask for it any more")


async def test_what_a_request_waits_for_stays_though_nobody_else_wants_it(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    for at in range(4):
        running = await replica.caller.send(replica.request(f"r{at}", await replica.register(f"acme-{at}")))
        await replica.caller.wait(lambda running=running: running.accepted is not None)  # type: ignore[misc]
    unwanted = await replica.register("unwanted", wanted=False)
    heard = await replica.caller.send(replica.request("waits", unwanted))
    await replica.until(lambda: tier(replica, unwanted) == "ram")
    convergence = replica.replica.convergence
    assert convergence.plan().actions == ()
    assert await replica.replica.loader.drop(unwanted.key) == "a request waits for it"
    engine.go()
    await replica.caller.wait(lambda: heard.over)
    assert heard.finish is not None
    assert replica.store.reads[unwanted.store_key] == 1
    await convergence.stir_now_and_then()
    await replica.until(lambda: tier(replica, unwanted) == "remote")


async def test_a_file_that_cannot_be_deleted_keeps_no_other_adapter_here_and_nobody_busy(
    replica: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = await replica.register("acme-1"), await replica.register("acme-2")
    delete, refusals = DiskFiles.delete, 0

    def refuse_one(files: DiskFiles, digest: str) -> None:
        nonlocal refusals
        if digest == stuck.digest:
            refusals += 1
            raise DiskRefused("planted: not permitted")
        delete(files, digest)

    monkeypatch.setattr(DiskFiles, "delete", refuse_one)
    for record in (stuck, other):
        await replica.caller.run(replica.request(f"for-{record.adapter_id}", record))
        await replica.tell(msgspec.structs.replace(record, wanted=False))
    await replica.until(lambda: tier(replica, other) == "remote")
    assert tier(replica, stuck) == "disk"
    tried = refusals
    for _ in range(50):
        await asyncio.sleep(0)
    assert refusals == tried, "it is tried again now and then, not again and again"
    monkeypatch.undo()
    await replica.replica.convergence.stir_now_and_then()
    await replica.until(lambda: tier(replica, stuck) == "remote")
