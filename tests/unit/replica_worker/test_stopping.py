"""How a replica drains, stops, and breaks."""

from __future__ import annotations

import asyncio

from services.replica_worker.engine.port import EngineFailed
from shared.contracts.catalog import DRAIN
from shared.messages.desired import DrainOrder
from tests.support.replica import REPLICA_ID, Rig, refused
from tests.support.unruly_engine import UnrulyEngine


async def test_an_order_to_drain_from_before_the_start_keeps_the_replica_idle_but_alive(
    replica: Rig, engine: UnrulyEngine
) -> None:
    console = replica.broker.connect("console")
    replica.replica.standing.not_ready = "not yet"
    await console.state(DRAIN).put(DrainOrder(replica_id=REPLICA_ID, reason="scaling down"), REPLICA_ID)
    await replica.until(lambda: replica.replica.standing.draining == "scaling down")
    assert not replica.stop_asked.is_set()


async def test_a_drain_order_finishes_what_runs_and_takes_nothing_new(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    running = await replica.caller.send(replica.request("r1"))
    await replica.caller.wait(lambda: running.accepted is not None)
    console = replica.broker.connect("console")
    await console.state(DRAIN).put(DrainOrder(replica_id=REPLICA_ID, reason="scaling down"), REPLICA_ID)
    await replica.stop_asked.wait()
    answer = refused(await replica.caller.run(replica.request("r2")))
    assert (answer.code, answer.elsewhere) == ("draining", True)
    assert replica.replica.reporter.report().draining
    engine.go()
    await replica.caller.wait(lambda: running.over)
    assert running.finish is not None
    assert running.finish.reason == "length"
    await console.state(DRAIN).delete(REPLICA_ID)
    again = await replica.caller.run(replica.request("r3"))
    assert again.accepted is not None


async def test_a_drain_order_that_does_not_end_the_replica_can_be_taken_back_while_requests_run(
    replica: Rig, engine: UnrulyEngine
) -> None:
    engine.hold()
    running = await replica.caller.send(replica.request("r1"))
    await replica.caller.wait(lambda: running.accepted is not None)
    drains = replica.broker.connect("autoscaler").state(DRAIN)
    order = DrainOrder(replica_id=REPLICA_ID, reason="a smaller pool", then_stop=False)
    await drains.put(order, REPLICA_ID)
    await replica.until(lambda: replica.replica.reporter.report().draining)
    assert refused(await replica.caller.run(replica.request("r2"))).code == "draining"
    assert not replica.stop_asked.is_set()
    await drains.delete(REPLICA_ID)
    await replica.until(lambda: not replica.replica.reporter.report().draining)
    again = await replica.caller.send(replica.request("r3"))
    engine.go()
    await replica.caller.wait(lambda: running.over and again.over)
    assert running.finish is not None
    assert again.finish is not None


async def test_stopping_waits_for_what_runs(replica: Rig, engine: UnrulyEngine) -> None:
    heard = await replica.caller.send(replica.request("r1", max_tokens=30))
    await replica.caller.wait(lambda: heard.accepted is not None)
    await replica.replica.stop()
    await replica.caller.wait(lambda: heard.over)
    assert heard.finish is not None
    assert heard.finish.usage.completion_tokens == 30


async def test_a_drain_order_that_is_withdrawn_does_not_call_off_a_stop(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    running = await replica.caller.send(replica.request("r1"))
    await replica.caller.wait(lambda: running.accepted is not None)
    stopping = asyncio.create_task(replica.replica.stop())
    await replica.until(lambda: replica.replica.standing.draining != "")
    drains = replica.broker.connect("console").state(DRAIN)
    await drains.put(DrainOrder(replica_id=REPLICA_ID, reason="scaling down"), REPLICA_ID)
    await drains.delete(REPLICA_ID)
    late = refused(await replica.caller.run(replica.request("r2")))
    assert (late.code, late.elsewhere) == ("draining", True)
    engine.go()
    await stopping


async def test_a_broken_engine_ends_the_replica_with_its_reason(replica: Rig, engine: UnrulyEngine) -> None:
    engine.broken = EngineFailed("out of memory")
    await replica.replica.tick()
    assert replica.stop_asked.is_set()
    assert replica.replica.failure == "the engine failed: out of memory"
    answer = refused(await replica.caller.run(replica.request("r1")))
    assert (answer.code, answer.elsewhere) == ("not_ready", True)
    assert "out of memory" in answer.message
    assert replica.replica.reporter.report().reason == "the engine failed: out of memory"
