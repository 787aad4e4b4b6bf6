"""The twin plays the fleet that was run: its names, its lengths, its fault."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest.calibration.seen import Seen
from loadtest.calibration.stage import Customer, FleetShape
from loadtest.twin.measured import Measured
from loadtest.twin.timing import StepTable, Timing
from loadtest.twin_validation import twinned
from loadtest.twin_validation.real import Played
from loadtest.twin_validation.workloads import CUSTOMERS, KILLED, ROOMY, SLOTS, TIGHT, HeldOut, held_out
from loadtest.workloads.calls import calls
from shared.messages.desired import AdapterRecord

MEASURED = Measured(timing=Timing(steps=StepTable(base_s=0.002)), restart_s=2.0)


def _known(slots: int) -> twinned.Known:
    records = [
        AdapterRecord(
            adapter_id=f"customer-{at:02d}", digest=f"{at:064x}", tenant_id=f"customer-{at:02d}", version="1",
            pool_id="abc-r16", base_model_hash="ab" * 32, rank=8, alpha=8.0, target_modules=("q_proj",),
            size_bytes=70_000, store_key="x", status="active",
        )
        for at in range(CUSTOMERS)
    ]  # fmt: skip
    customers = tuple(Customer(alias=record.adapter_id, key="k", record=record) for record in records)
    return twinned.Known(shape=FleetShape(model=Path("tiny"), slots=slots), customers=customers, measured=MEASURED)


def _played(workload: HeldOut) -> Played:
    seen = [
        Seen(
            request_id=f"r{at}", adapter=call.tenant, planned_s=call.at_s, sent_s=call.at_s, first_s=call.at_s + 0.01,
            ended_s=call.at_s + 1.0, outcome="ok", tier="gpu", prompt_tokens=77, tokens=5, attempts=1,
        )
        for at, call in enumerate(calls(workload.shape))
    ]  # fmt: skip
    return Played(seen=seen, held={"replica-0": {"customer-00": "gpu"}, "replica-1": {"customer-01": "disk"}})


@pytest.mark.parametrize("workload", held_out(6.0), ids=lambda workload: workload.name)
def test_every_held_out_workload_runs_in_the_twin(workload: HeldOut) -> None:
    played = _played(workload)
    outcome = twinned.run(_known(SLOTS[workload.fleet]), workload, played, seed=1)
    assert len(outcome.requests) == len(played.seen)
    assert {each.outcome for each in outcome.requests} == {"ok"}
    assert {each.tokens for each in outcome.requests} == {5}
    assert {each.replica for each in outcome.requests} == {"replica-0", "replica-1"}


def test_the_real_names_decide_who_owns_what() -> None:
    workload = held_out(6.0)[0]
    scenario = twinned.scenario(_known(14), workload, _played(workload), seed=1)
    assert scenario.cast.replicas == ("replica-0", "replica-1")
    assert [each.adapter_id for each in scenario.cast.adapters][:2] == ["customer-00", "customer-01"]
    assert {call.prompt_tokens for call in scenario.calls()} == {77}


def test_the_replica_that_was_killed_is_gone_for_as_long_as_a_restart_takes() -> None:
    [killed] = [each for each in held_out(6.0) if each.kill_at_s is not None]
    [fault] = twinned.scenario(_known(14), killed, _played(killed), seed=1).faults
    assert (fault.kind, fault.replica, fault.at_s, fault.for_s) == ("death", KILLED, 2.0, 2.0)


def test_at_least_six_workloads_are_held_out_and_some_have_fewer_slots_than_adapters() -> None:
    workloads = held_out(6.0)
    assert len(workloads) >= 6
    assert len({each.shape.seed for each in workloads}) == len(workloads)
    assert {each.fleet for each in workloads} == {ROOMY, TIGHT}
    assert SLOTS[TIGHT] < CUSTOMERS < SLOTS[ROOMY]


def test_an_answer_that_was_cut_off_is_as_long_as_it_was_meant_to_be() -> None:
    workload = held_out(6.0)[0]
    played = _played(workload)
    cut = [msgspec.structs.replace(each, outcome="cut off", tokens=1) for each in played.seen]
    scenario = twinned.scenario(_known(14), workload, msgspec.structs.replace(played, seen=cut), seed=1)
    assert [call.output_tokens for call in scenario.calls()] == [call.output_tokens for call in calls(workload.shape)]


def test_replicas_begin_with_what_they_held() -> None:
    [workload] = [each for each in held_out(6.0) if each.name == "4 slots, uniform"]
    held = {f"customer-{at:02d}": "gpu" if at >= CUSTOMERS - 4 else "ram" for at in range(CUSTOMERS)}
    played = msgspec.structs.replace(_played(workload), held={"replica-0": held, "replica-1": held})
    outcome = twinned.run(_known(SLOTS[TIGHT]), workload, played, seed=1)
    first = min(outcome.requests, key=lambda each: each.arrived_s)
    assert first.tier == held[f"customer-{first.adapter:02d}"]
    assert any(each.tier == "ram" for each in outcome.requests)
