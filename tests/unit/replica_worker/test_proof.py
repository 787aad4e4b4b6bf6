"""Every load is proven before anything of its slot leaves the worker, whatever was planted into it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from services.replica_worker.engine.port import EngineFailed, HostAdapter
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from shared.contracts.catalog import FINGERPRINT
from shared.messages.desired import AdapterRecord
from shared.messages.operations import AskFingerprint, Fingerprint
from tests.support.proof import Mismatches, assert_silent, evaluated, outcomes, truth
from tests.support.replica import REPLICA_ID, Rig, refused
from tests.support.replica_operations import load, unload
from tests.support.unruly_engine import UnrulyEngine


async def test_the_probe_shares_the_step_of_the_first_request(replica: Rig, engine: UnrulyEngine) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    engine.probes_wait = True
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", record))
    await replica.until(lambda: replica.replica.loader.slots.settling)
    engine.allow(1)
    await replica.caller.wait(lambda: heard.accepted is not None and bool(heard.token_ids))
    assert len(heard.token_ids) == 1, "one step made both the proof and the first token"
    engine.go()
    await replica.caller.wait(lambda: heard.over)
    probes = engine.calls["probe"]
    await replica.caller.run(replica.request("r2", record))
    assert engine.calls["probe"] == probes, "later requests pay nothing"
    assert outcomes(replica)["by the probe"] == 1


async def test_tokens_wait_for_the_proof_and_so_do_those_of_whoever_joins(replica: Rig, engine: UnrulyEngine) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    expected = await truth(replica, "clean", record)
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    engine.probe_gate = answer
    before = engine.load_figures().steps
    first = await replica.caller.send(replica.request("r1", record))
    second = await replica.caller.send(replica.request("r2", record))
    await replica.until(
        lambda: engine.load_figures().steps >= before + len(expected) and engine.load_figures().running == 0
    )
    assert (first.accepted, second.accepted) == (None, None)
    assert_silent(replica, first)
    assert_silent(replica, second)
    assert replica.replica.reporter.report().unproven_slots == 1
    answer.set_result(None)
    await replica.caller.wait(lambda: first.over and second.over)
    assert first.token_ids == second.token_ids == expected
    assert replica.replica.reporter.report().unproven_slots == 0


async def test_a_wrong_load_is_healed_by_a_second_and_its_client_sees_nothing(
    replica: Rig, engine: UnrulyEngine
) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    expected = await truth(replica, "clean", record)
    engine.wrong_loads = 1
    heard = [await replica.caller.send(replica.request(f"r{at}", record)) for at in range(3)]
    await replica.caller.wait(lambda: all(each.over for each in heard))
    assert [each.token_ids for each in heard] == [expected] * 3
    assert [len(each.answers) for each in heard] == [2] * 3, "queued and accepted, once"
    report = replica.replica.reporter.report()
    assert (report.effect_mismatches, report.quarantined) == (1, 0)
    assert outcomes(replica)["tried again"] == 1


async def test_what_stays_wrong_is_quarantined_told_and_refused_to_the_other_owner(
    replica: Rig, engine: UnrulyEngine
) -> None:
    told = Mismatches()
    await told.listen(replica)
    record, other = [await evaluated(replica, await replica.register(f"acme-{at}")) for at in range(2)]
    expected = await truth(replica, "clean", record)
    engine.wrong_weights = True
    heard = [await replica.caller.send(replica.request(f"r{at}", record)) for at in range(3)]
    await replica.caller.wait(lambda: all(each.over for each in heard))
    for each in heard:
        refusal = refused(each)
        assert (refusal.code, refusal.elsewhere) == ("adapter_failed", True)
        assert "does not do here what is on record" in refusal.message
        assert_silent(replica, each)
    (event,) = await told.wait(1)
    assert (event.adapter_id, event.replica_id) == (record.adapter_id, REPLICA_ID)
    assert replica.replica.loader.tier_of(record.key) == "disk"
    assert replica.replica.reporter.report().quarantined == 1

    loads = engine.calls["load"]
    assert refused(await replica.caller.run(replica.request("again", record))).elsewhere
    assert engine.calls["load"] == loads, "for a while it is not even tried"
    engine.wrong_weights = False
    assert (await replica.caller.run(replica.request("other", other))).finish is not None
    await replica.clock.advance(31.0)
    assert (await replica.caller.run(replica.request("later", record))).token_ids == expected
    assert replica.replica.reporter.report().quarantined == 0


async def test_a_quarantine_is_longer_each_time(replica: Rig, engine: UnrulyEngine) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    engine.wrong_weights = True
    waits_s = []
    for at in range(3):
        refused(await replica.caller.run(replica.request(f"r{at}", record)))
        failure = replica.replica.loader.failures.of(record.key)
        assert failure is not None
        waits_s.append(failure.retry_at_s - replica.clock.now_s())
        await replica.clock.advance(waits_s[-1])
    assert waits_s == [30.0, 60.0, 120.0]


async def test_a_slot_index_off_by_one_is_seen_although_every_byte_is_right(replica: Rig, engine: UnrulyEngine) -> None:
    records = [await evaluated(replica, await replica.register(f"acme-{at}")) for at in range(3)]
    engine.slots_off_by = 1
    heard = [await replica.caller.run(replica.request(f"r{at}", each)) for at, each in enumerate(records)]
    for each in heard:
        assert refused(each).elsewhere
        assert_silent(replica, each)


async def test_a_copy_in_ram_that_is_somebody_elses_is_read_anew(replica: Rig) -> None:
    one, two = [await evaluated(replica, await replica.register(f"acme-{at}")) for at in range(2)]
    expected = await truth(replica, "clean", one)
    for record in (one, two):
        assert (await load(replica, record, "ram")).ok
    hosts = replica.replica.loader.ram._hosts
    hosts[one.key], hosts[two.key] = hosts[two.key], hosts[one.key]
    heard = await replica.caller.run(replica.request("r1", one))
    assert heard.token_ids == expected
    assert outcomes(replica)["tried again"] == 1


async def test_a_ram_tier_that_gives_somebody_elses_for_ever_is_refused_whatever_that_one_does(
    replica: Rig, engine: UnrulyEngine
) -> None:
    """Also if it does the same on the probe: here nothing does anything."""
    engine.no_effect = True
    one, two = [await replica.register(f"acme-{at}") for at in range(2)]
    ram = replica.replica.loader.ram
    hold = ram.hold

    async def swapped(record: AdapterRecord) -> HostAdapter:
        return await hold(two if record == one else one)

    ram.hold = swapped  # type: ignore[method-assign]
    heard = await replica.caller.run(replica.request("r1", one))
    assert (refused(heard).code, refused(heard).elsewhere) == ("adapter_failed", True)
    assert "in RAM is another adapter's" in refused(heard).message
    assert outcomes(replica) == {"tried again": 1, "refused": 1}
    assert replica.replica.reporter.report().quarantined == 1


@pytest.mark.parametrize("known", [True, False], ids=["on record", "of another build"])
async def test_an_adapter_that_does_not_show_on_the_probe_is_checked_byte_for_byte(
    replica: Rig, engine: UnrulyEngine, known: bool
) -> None:
    record = await replica.register("acme-1")
    engine.no_effect = True
    if known:
        effect = (await fingerprint(replica, record)).effect
        assert effect is not None
        assert effect.shift == 0.0
        record = await retold(replica, record, effects=(effect,))
    assert (await replica.caller.run(replica.request("r1", record))).finish is not None
    assert outcomes(replica).get("by its bytes", 0) == known
    assert (await unload(replica, record)).ok
    engine.wrong_weights = True
    heard = await replica.caller.run(replica.request("r2", record))
    assert "what stands in the slot" in refused(heard).message
    assert_silent(replica, heard)


async def test_an_effect_of_another_build_is_learnt_here_once_from_bytes_that_are_right(
    replica: Rig, engine: UnrulyEngine
) -> None:
    record = await replica.register("acme-1")
    engine.wrong_loads = 1
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.finish is not None
    assert outcomes(replica) == {"tried again": 1, "learnt here": 1}
    assert (await unload(replica, record)).ok
    assert (await load(replica, record)).ok
    assert outcomes(replica)["by the probe"] == 1


async def test_adapters_evaluated_before_effects_were_kept_are_checked_against_their_fingerprint(
    replica: Rig, engine: UnrulyEngine
) -> None:
    record = await replica.register("acme-1")
    found = await fingerprint(replica, record)
    record = await retold(replica, record, fingerprint=found.fingerprint)
    reads = engine.calls["read"]
    assert (await load(replica, record)).ok
    assert engine.calls["read"] == reads + 1
    wrong = await retold(replica, record, fingerprint=found.fingerprint[:-4] + "beef")
    answer = await load(replica, wrong)
    assert not answer.ok
    assert "what stands in the slot" in answer.reason


async def test_a_background_load_is_proven_by_itself(replica: Rig, engine: UnrulyEngine) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    engine.wrong_weights = True
    answer = await load(replica, record)
    assert (answer.ok, answer.tier) == (False, "disk")
    engine.wrong_weights = False
    assert (await load(replica, record)).ok, "an operator tries anew"
    probes = engine.calls["probe"]
    assert (await replica.caller.run(replica.request("r1", record))).finish is not None
    assert engine.calls["probe"] == probes


async def test_loads_do_not_wait_for_the_proofs_of_others(replica: Rig, engine: UnrulyEngine) -> None:
    records = [await evaluated(replica, await replica.register(f"acme-{at}")) for at in range(4)]
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    engine.probe_gate = gate
    heard = [await replica.caller.send(replica.request(f"r{at}", each)) for at, each in enumerate(records)]
    await replica.until(lambda: len(replica.replica.loader.slots.table.resident) == 4)
    assert replica.replica.loader.slots.unproven == 4
    gate.set_result(None)
    await replica.caller.wait(lambda: all(each.over for each in heard))


@pytest.mark.parametrize("times", [1, 2])
async def test_a_probe_that_breaks_off_is_tried_again_once(replica: Rig, engine: UnrulyEngine, times: int) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    engine.fail("probe", RuntimeError("planted"), times=times)
    heard = await replica.caller.run(replica.request("r1", record))
    if times == 1:
        assert heard.finish is not None
    else:
        assert refused(heard).code == "adapter_unavailable"
        assert "cannot be proven: planted" in refused(heard).message
    assert (await replica.caller.run(replica.request("r2", record))).finish is not None


async def test_an_engine_that_breaks_under_a_proof_refuses_its_requests(replica: Rig, engine: UnrulyEngine) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    engine.fail("probe", EngineFailed("planted"))
    engine.fail("clear", EngineFailed("planted"), times=2)
    refusal = refused(await replica.caller.run(replica.request("r1", record)))
    assert (refusal.code, refusal.elsewhere) == ("not_ready", True)


@pytest.mark.parametrize("steps", range(0, 44, 2))
@pytest.mark.parametrize("wrong_loads", [0, 1, 2])
async def test_a_client_that_leaves_at_any_moment_of_a_proof_leaves_nothing_behind(
    replica: Rig, engine: UnrulyEngine, steps: int, wrong_loads: int
) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    expected = await truth(replica, "clean", record)
    engine.wrong_loads = wrong_loads
    leaving, staying = [await replica.caller.send(replica.request(f"r{at}", record)) for at in range(2)]
    for _ in range(steps):
        await asyncio.sleep(0)
    await replica.caller.cancel("r0")
    await replica.caller.wait(lambda: staying.over)
    await replica.settled()
    assert engine.load_figures().running == 0
    assert leaving.token_ids == expected[: len(leaving.token_ids)]
    assert staying.token_ids in ((expected,) if wrong_loads < 2 else (expected, ()))


@pytest.mark.parametrize("end", ["deadline", "drain", "cancel"])
async def test_requests_end_as_ever_while_they_wait_for_a_proof(replica: Rig, engine: UnrulyEngine, end: str) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    engine.probe_gate = gate
    heard = await replica.caller.send(replica.request("r1", record, deadline_s=2.0))
    await replica.until(lambda: replica.replica.loader.slots.settling)
    ends: dict[str, Callable[[], Awaitable[object]]] = {
        "deadline": lambda: replica.clock.advance(2.5),
        "drain": lambda: replica.replica.generation.end_all("the replica stopped"),
        "cancel": lambda: replica.caller.cancel("r1"),
    }
    await ends[end]()
    await replica.replica.tick()
    gate.set_result(None)
    await replica.settled()
    assert replica.replica.generation.open == 0
    assert engine.load_figures().running == 0
    assert_silent(replica, heard)
    assert (await replica.caller.run(replica.request("r2", record))).finish is not None


async def test_what_an_operation_asks_for_is_proven_first(replica: Rig, engine: UnrulyEngine) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    found = await fingerprint(replica, record)
    assert found.effect == record.effects[0]
    assert found.fingerprint == f"timed-1/none/{found.effect.slot_digest}"
    assert (await unload(replica, record)).ok
    engine.wrong_weights = True
    with pytest.raises(AdapterFailed, match="does not do here"):
        await replica.replica.loader.acquire_proven(record)


async def test_a_reference_on_a_slot_that_was_lost_rides_nowhere(replica: Rig, engine: UnrulyEngine) -> None:
    record = await evaluated(replica, await replica.register("acme-1"))
    engine.wrong_weights = True
    reference = await replica.replica.loader.acquire(record)
    with pytest.raises(AdapterFailed):
        await reference.proof.settled()
    with pytest.raises((AdapterFailed, AdapterUnavailable)):
        await reference.proof.settled()
    reference.release()
    assert replica.replica.loader.slots.table.references == 0


async def fingerprint(replica: Rig, record: AdapterRecord) -> Fingerprint:
    ask = AskFingerprint(adapter_id=record.adapter_id, digest=record.digest)
    return await replica.registry.ask(FINGERPRINT, ask, REPLICA_ID, timeout_s=10)


async def retold(replica: Rig, record: AdapterRecord, **changes: Any) -> AdapterRecord:
    """The adapter with another record; it is on no tier, and nothing was learnt of it."""
    record = msgspec.structs.replace(record, **changes)
    await replica.tell(record)
    await unload(replica, record)
    replica.replica.loader.slots.effects.forget(record.key)
    return record
