"""A twin that plays a fleet which exists has its names, and so its owners."""

from __future__ import annotations

import msgspec

from loadtest.twin.book import Book
from loadtest.twin.scenario import BASE_HASH, Cast, PoolShape, Scenario
from loadtest.twin.timing import StepTable, Timing
from loadtest.twin.twin import Twin
from loadtest.workloads.call import Call
from shared.hashing import rank

POOL = PoolShape(replicas=3, slots=8, adapter_bytes=1_000)
NAMES = ("north", "south", "west")


def _cast(customers: int) -> Cast:
    made = Book((POOL,), customers)
    named = [
        msgspec.structs.replace(made.record(at), adapter_id=f"voice-{at}", base_model_hash="elsewhere")
        for at in range(customers)
    ]
    return Cast(replicas=NAMES, adapters=tuple(named))


def test_records_are_the_casts_as_far_as_it_goes() -> None:
    cast = _cast(2)
    book = Book((POOL,), 3, cast.adapters)
    assert [book.record(at).adapter_id for at in range(3)] == ["voice-0", "voice-1", "adapter-000002"]
    assert [book.number_of(book.record(at).adapter_id) for at in range(3)] == [0, 1, 2]
    assert book.known("voice-1").base_model_hash == BASE_HASH


def test_on_an_idle_fleet_the_first_by_its_real_name_answers() -> None:
    calls = [Call(0.5 * at, at, at, 10, 2, 2, True) for at in range(6)]
    scenario = Scenario(
        calls=lambda: calls, customers=6, for_s=10.0, pools=(POOL,), cast=_cast(6),
        timing=Timing(steps=StepTable(base_s=0.001)),
    )  # fmt: skip
    outcome = Twin(scenario).run()
    first = {at: rank(f"voice-{at}", dict.fromkeys(NAMES, 1.0))[0] for at in range(6)}
    assert {each.adapter: each.replica for each in outcome.requests} == first
