"""A reader that says it is exact is exact, whatever the bus lost, repeated or swapped on the way.

The messages are the worker's own, and go through the channel's codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.core.residency import ResidencyLog
from shared.contracts.catalog import REPLICA_RESIDENCY
from shared.contracts.codec import decode, encode
from shared.messages.identity import AdapterKey
from shared.messages.reports import Residency, ResidencyView, fold_residency

Tiers = Mapping[AdapterKey, str]


def key(name: str, digest: str = "0" * 64) -> AdapterKey:
    return AdapterKey(adapter_id=name, digest=digest)


A, B, C, D, E = (key(name) for name in "abcde")


def log(incarnation: str = "one", entries_per_message: int = 2) -> ResidencyLog:
    return ResidencyLog("r1", incarnation, "pool", entries_per_message)


def fold(messages: Iterable[Residency], view: ResidencyView | None = None) -> ResidencyView:
    folded = view or ResidencyView()
    for message in messages:
        folded = fold_residency(folded, decode(REPLICA_RESIDENCY, encode(REPLICA_RESIDENCY, message)))
    return folded


def test_nothing_is_exact_before_the_first_snapshot() -> None:
    view = fold(log().changes({A: "gpu"}))
    assert not view.exact
    assert view.tiers == {A: "gpu"}


def test_a_snapshot_and_the_changes_after_it_are_exact() -> None:
    worker = log()
    view = fold([*worker.snapshot({A: "gpu", B: "ram"}), *worker.changes({B: "gpu", A: "remote", C: "disk"})])
    assert view.exact
    assert view.tiers == {B: "gpu", C: "disk"}


def test_the_same_id_with_other_bytes_is_another_adapter() -> None:
    worker, other = log(), key("a", "f" * 64)
    view = fold([*worker.snapshot({A: "gpu", other: "disk"}), *worker.changes({A: "remote"})])
    assert view.tiers == {other: "disk"}


def test_a_lost_change_is_noticed_and_the_next_snapshot_heals_it() -> None:
    worker = log()
    view = fold(worker.snapshot({A: "gpu"}))
    worker.changes({A: "remote"})
    view = fold(worker.changes({B: "gpu"}), view)
    assert not view.exact
    view = fold(worker.changes({C: "gpu"}), view)
    assert not view.exact
    view = fold(worker.snapshot({B: "gpu", C: "gpu"}), view)
    assert view.exact
    assert view.tiers == {B: "gpu", C: "gpu"}


def test_repeated_and_late_messages_change_nothing() -> None:
    worker = log()
    first, second, third = [*worker.snapshot({A: "gpu"}), *worker.changes({A: "ram"}), *worker.changes({A: "disk"})]
    view = fold([first, second, third])
    assert fold([third, second, first], view) == view


def test_a_snapshot_in_parts_counts_when_all_of_it_is_there() -> None:
    worker = log()
    view = fold(worker.snapshot({E: "gpu"}))
    parts = worker.snapshot({A: "gpu", B: "ram", C: "disk", D: "gpu", E: "gpu"})
    assert len(parts) == 3
    for part in parts[:-1]:
        view = fold([part], view)
        assert view.exact
        assert view.tiers == {E: "gpu"}
    view = fold(parts[-1:], view)
    assert view.exact
    assert view.tiers == {A: "gpu", B: "ram", C: "disk", D: "gpu", E: "gpu"}
    assert view.pending == {}


def test_a_snapshot_with_a_hole_is_no_snapshot() -> None:
    """Also if the parts after the hole follow each other up to the last one."""
    for lost in range(4):
        parts = log(entries_per_message=1).snapshot({A: "gpu", B: "ram", C: "disk", D: "gpu"})
        view = fold(part for part in parts if part.part != lost)
        assert not view.exact, lost
        assert view.pending == {} or lost == 3


def test_two_halves_of_two_snapshots_are_no_snapshot() -> None:
    worker = log(entries_per_message=1)
    first, second = worker.snapshot({A: "gpu", B: "gpu"}), worker.snapshot({C: "gpu", D: "gpu"})
    assert not fold([first[0], second[1]]).exact


def test_a_restarted_replica_holds_nothing_that_the_old_one_held() -> None:
    view = fold(log("one").snapshot({A: "gpu", B: "ram"}))
    restarted = log("two")
    view = fold(restarted.changes({C: "disk"}), view)
    assert not view.exact
    assert view.tiers == {C: "disk"}
    view = fold(restarted.snapshot({C: "disk"}), view)
    assert view.exact


def test_a_restart_during_a_snapshot_drops_its_parts() -> None:
    parts = log("one").snapshot({A: "gpu", B: "gpu", C: "gpu"})
    view = fold([parts[0], *log("two").snapshot({D: "gpu"})])
    assert (view.exact, view.tiers, view.pending) == (True, {D: "gpu"}, {})


# -- any history, any bus -------------------------------------------------------------------------------

KEYS = st.sampled_from([A, B, C, D, E])
CHANGE = st.dictionaries(KEYS, st.sampled_from(["gpu", "ram", "disk", "remote"]), min_size=1)
HISTORY = st.lists(st.one_of(CHANGE, st.just("snapshot"), st.just("restart")), max_size=20)
FATES = st.lists(st.sampled_from(["arrives", "arrives", "arrives", "is lost", "comes twice", "comes late"]))


def speak(history: list[dict[AdapterKey, str] | str]) -> tuple[list[Residency], dict[tuple[str, int], Tiers]]:
    """What the worker says, and what is true after each message, by incarnation and sequence."""
    said, truth, held = list[Residency](), dict[tuple[str, int], Tiers](), dict[AdapterKey, str]()
    worker, restarts = log("0", entries_per_message=1), 0
    for step in history:
        if step == "restart":
            held, restarts = {}, restarts + 1
            worker = log(str(restarts), entries_per_message=1)
            continue
        messages = worker.snapshot(held) if isinstance(step, str) else worker.changes(step)
        for message in messages:
            told = {key(one.adapter_id, one.digest): one.tier for one in message.entries}
            held = {name: tier for name, tier in {**held, **told}.items() if tier != "remote"}
            truth[message.incarnation, message.sequence] = held
        said += messages
    return said, truth


def deliver(said: list[Residency], fates: list[str]) -> list[Residency]:
    arrived, late = list[Residency](), list[Residency]()
    for at, message in enumerate(said):
        fate = fates[at] if at < len(fates) else "arrives"
        if fate == "comes late":
            late.append(message)
            continue
        arrived += [message] * {"is lost": 0, "arrives": 1, "comes twice": 2}[fate]
        arrived, late = [*arrived, *late], []
    return [*arrived, *late]


@given(HISTORY, FATES)
def test_exact_is_never_said_in_error(history: list[dict[AdapterKey, str] | str], fates: list[str]) -> None:
    said, truth = speak(history)
    view = ResidencyView()
    for message in deliver(said, fates):
        view = fold([message], view)
        if view.exact:
            assert view.tiers == truth[view.incarnation, view.sequence]


@given(HISTORY, FATES, CHANGE)
def test_one_whole_snapshot_heals_everything(
    history: list[dict[AdapterKey, str] | str], fates: list[str], after: dict[AdapterKey, str]
) -> None:
    said, _ = speak(history)
    view = fold(deliver(said, fates))
    healed, truth = speak([*history, "snapshot", after])
    view = fold(healed[len(said) :], view)
    assert view.exact
    assert view.tiers == truth[view.incarnation, view.sequence]


@given(HISTORY)
def test_a_reader_that_hears_all_stays_exact_from_the_first_snapshot_on(
    history: list[dict[AdapterKey, str] | str],
) -> None:
    said, _ = speak(["snapshot", *(step for step in history if step != "restart")])
    view = ResidencyView()
    for message in said:
        view = fold([message], view)
        assert view.exact
