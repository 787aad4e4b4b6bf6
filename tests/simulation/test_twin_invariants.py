"""Whatever goes wrong in the twin's fleet, what must hold holds after every event; and what does not is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from loadtest.twin.agenda import Agenda, ClockTurnedBack
from loadtest.twin.replica import Replica
from loadtest.twin.twin import Twin
from services.replica_worker.core.slot import SlotState
from shared.messages.desired import AssignedAdapter
from tests.simulation.twin_fleets import EVERYTHING_GOES_WRONG, run, scenario, traffic


def test_invariants_hold_after_every_event_while_everything_goes_wrong() -> None:
    outcome = run(traffic(), gateways=2, full_wire=True, check_every=1, faults=EVERYTHING_GOES_WRONG)
    assert outcome.broken == ()
    assert len(outcome.requests) == sum(1 for _ in scenario(traffic()).calls())
    ended = Counter(each.outcome for each in outcome.requests)
    assert set(ended) == {"ok"}, "streams of replicas that were lost have gone on elsewhere"


def test_the_same_seed_gives_the_same_run() -> None:
    first, again = (run(traffic(for_s=10.0), gateways=2, faults=EVERYTHING_GOES_WRONG) for _ in range(2))
    assert first.requests == again.requests
    assert first.seconds == again.seconds


def test_without_losses_the_full_wire_and_its_snapshots_change_nothing() -> None:
    plain, full = (run(traffic(for_s=25.0), full_wire=full) for full in (False, True))
    assert plain.requests == full.requests


Harm = Callable[[Twin, Replica], None]


def _takes_a_reference(twin: Twin, replica: Replica) -> None:
    _busy(replica).references += 1


def _loses_a_reference(twin: Twin, replica: Replica) -> None:
    _busy(replica).references = -1


def _gives_a_slot_away(twin: Twin, replica: Replica) -> None:
    table = replica.slots.table
    taken = _busy(replica)
    other = next(key for key in twin.registry.records if not table.has_slot(key))
    table._slot_of.pop(taken.key)
    taken.key, table._slot_of[other] = other, taken.index


def _grows_a_slot(twin: Twin, replica: Replica) -> None:
    replica.body = msgspec.structs.replace(replica.body, slots=len(replica.slots.table.resident) - 1)


def _forgets_bytes(twin: Twin, replica: Replica) -> None:
    replica.tiers.ram._used_bytes -= 1


def _overfills_the_disk(twin: Twin, replica: Replica) -> None:
    replica.tiers.disk.budget_bytes = replica.tiers.disk.used_bytes - 1


def _runs_in_no_row(twin: Twin, replica: Replica) -> None:
    shape = msgspec.structs.replace(replica.body.batch, max_rows=len(replica.batch.rows.running) - 1)
    replica.body = msgspec.structs.replace(replica.body, batch=shape)


def _makes_a_token_up(twin: Twin, replica: Replica) -> None:
    replica.batch._produced += 1


def _promises_too_little(twin: Twin, replica: Replica) -> None:
    replica.promises.total -= 1


def _counts_a_send_twice(twin: Twin, replica: Replica) -> None:
    twin.gateways[0].fleet.sends(replica.body.replica_id).sent("nobody", 10_000_000)


def _loses_a_request(twin: Twin, replica: Replica) -> None:
    twin.gateways[0].live.popitem()


def _ends_one_twice(twin: Twin, replica: Replica) -> None:
    twin.over += 1


def _assigns_beyond_the_slots(twin: Twin, replica: Replica) -> None:
    assignment = replica.convergence.assignment
    everything = tuple(
        AssignedAdapter(adapter_id=key.adapter_id, digest=key.digest, role="owner", tier="gpu")
        for key in twin.registry.records
    )
    replica.convergence.assignment = msgspec.structs.replace(assignment, parts={0: everything}, shards=1)


def _follows_an_older_placement(twin: Twin, replica: Replica) -> None:
    assignment = replica.convergence.assignment
    replica.convergence.assignment = msgspec.structs.replace(assignment, epoch=assignment.epoch - 1)


def _lets_an_older_placement_write(twin: Twin, replica: Replica) -> None:
    stored = twin.store.stored
    older = {pool: msgspec.structs.replace(each, epoch=each.epoch - 1) for pool, each in stored.memberships.items()}
    twin.store.stored = msgspec.structs.replace(stored, memberships=older)


def _turns_the_clock_back(twin: Twin, replica: Replica) -> None:
    twin.agenda.now_s -= 1.0


PLANTED: list[tuple[Harm, str]] = [
    (_takes_a_reference, "references, of"),
    (_loses_a_reference, "with -1 references"),
    (_gives_a_slot_away, "is not in its slot"),
    (_grows_a_slot, "adapters are resident, there are"),
    (_forgets_bytes, "RAM: "),
    (_overfills_the_disk, "disk: "),
    (_runs_in_no_row, "requests run in"),
    (_makes_a_token_up, "its steps produced"),
    (_promises_too_little, "tokens in flight, its requests were promised"),
    (_counts_a_send_twice, "tokens sent to"),
    (_loses_a_request, "requests began"),
    (_ends_one_twice, "requests began"),
    (_assigns_beyond_the_slots, "it is assigned"),
    (_follows_an_older_placement, "it follows epoch 0 after 1"),
    (_lets_an_older_placement_write, "replaced those of epoch 1"),
    (_turns_the_clock_back, "the clock went back"),
]


@pytest.mark.parametrize(("harm", "sentence"), PLANTED, ids=[harm.__name__.strip("_") for harm, _ in PLANTED])
def test_a_planted_fault_is_noticed(harm: Harm, sentence: str) -> None:
    twin = Twin(scenario(traffic(for_s=10.0)))
    told: list[str] = []

    def plant() -> None:
        twin.invariants.check()
        assert twin.invariants.broken == []
        harm(twin, next(replica for replica in twin.fleet if replica.batch.rows.running))
        twin.invariants.check()
        told.extend(twin.invariants.broken)
        raise StopIteration

    twin.agenda.at(9.0, plant)
    with pytest.raises(StopIteration):
        twin.run()
    assert any(sentence in each for each in told), told


def test_nothing_happens_before_now() -> None:
    agenda = Agenda()
    agenda.at(2.0, agenda.at, 1.0, print)
    with pytest.raises(ClockTurnedBack):
        agenda.run(3.0)


def _busy(replica: Replica):  # type: ignore[no-untyped-def]
    slots = replica.slots.table._slots
    return next(slot for slot in slots if slot.references and slot.state is SlotState.READY)
