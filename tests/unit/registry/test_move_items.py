"""What becomes of each adapter in a migration, as its aliases and successors show."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.registry.core.base_migration import move_items, moves
from services.registry.core.base_migration.move_items import ITEM_STATES, Item, Seen, Successor, settle
from services.registry.core.lifecycle import IllegalMove
from shared.messages.adapters import STATES
from tests.support.migration_samples import item, migration

A, B = "acme/a:prod", "acme/b:prod"


def successor(status: str, adapter_id: str = "v1-new", at_s: float = 1.0) -> Successor:
    return Successor(adapter_id=adapter_id, status=status, reason="as it says", registered_at_s=at_s)


# -- the way of one adapter ----------------------------------------------------------------------------


def test_the_way_of_a_good_adapter() -> None:
    now = settle(item(), Seen(naming=(A,)), 1.0)
    assert (now.state, now.aliases, now.updated_at_s) == ("requested", (A,), 1.0)
    for status in ("verified", "evaluating"):
        assert settle(now, Seen(naming=(A,), successors=(successor(status),)), 2.0) == now
    now = settle(now, Seen(naming=(A,), successors=(successor("active"),)), 3.0)
    assert (now.state, now.successor_id) == ("trained", "v1-new")
    now = settle(now, Seen(moved=(A,), successors=(successor("active"),)), 4.0)
    assert (now.state, now.aliases, now.moved, now.updated_at_s) == ("cut_over", (), (A,), 4.0)
    assert move_items.finish(now, 5.0).state == "done"


def test_an_adapter_that_no_alias_means_is_not_trained_again() -> None:
    assert settle(item(), Seen(), 1.0) == item()
    assert settle(item("requested", aliases=(A,)), Seen(), 1.0).state == "planned"


def test_a_hold_asks_for_nothing_and_still_sees_everything() -> None:
    held = Seen(naming=(A,), holding=True)
    assert settle(item(), held, 1.0).state == "planned"
    ready = msgspec.structs.replace(held, successors=(successor("active"),))
    assert settle(item("requested"), ready, 1.0).state == "trained"


def test_what_cannot_be_trained_waits_with_the_reason_until_it_can() -> None:
    held = settle(item(), Seen(naming=(A,), blocked="no dataset"), 1.0)
    assert (held.state, held.reason) == ("held", "no dataset")
    assert settle(held, Seen(naming=(A,), blocked="no dataset"), 2.0) == held
    assert settle(held, Seen(naming=(A,)), 3.0).state == "requested"
    by_hand = Seen(naming=(A,), blocked="no dataset", successors=(successor("active"),))
    assert settle(held, by_hand, 3.0).state == "trained"


@pytest.mark.parametrize("status", ["failed", "rejected", "retired"])
def test_a_successor_that_is_refused_fails_the_item_once(status: str) -> None:
    seen = Seen(naming=(A,), successors=(successor(status),))
    failed = settle(item("requested", aliases=(A,)), seen, 1.0)
    assert (failed.state, failed.successor_id, "as it says" in failed.reason) == ("failed", "v1-new", True)
    asked = moves.retry(migration(), failed, "v1", 2.0)
    assert isinstance(asked, Item)
    assert settle(asked, seen, 3.0) == asked
    better = Seen(naming=(A,), successors=(successor(status), successor("active", "v1-newer", 2.0)))
    assert settle(asked, better, 4.0).successor_id == "v1-newer"


def test_an_override_makes_a_failed_successor_good() -> None:
    failed = item("failed", aliases=(A,), successor_id="v1-new")
    assert settle(failed, Seen(naming=(A,), successors=(successor("active"),)), 1.0).state == "trained"


def test_the_newest_successor_that_passed_is_taken() -> None:
    seen = Seen(naming=(A,), successors=(
        successor("active", "one", 1.0), successor("active", "two", 2.0), successor("failed", "three", 3.0)
    ))  # fmt: skip
    assert settle(item("requested"), seen, 1.0).successor_id == "two"


def test_one_of_two_aliases_is_no_cut_over() -> None:
    seen = Seen(naming=(B,), moved=(A,), successors=(successor("active"),))
    half = settle(item("trained", aliases=(A, B), successor_id="v1-new"), seen, 1.0)
    assert (half.state, half.aliases, half.moved) == ("trained", (B,), (A,))


def test_an_alias_that_went_back_by_whatever_hand_stays_back() -> None:
    done = item("cut_over", moved=(A,), successor_id="v1-new")
    seen = Seen(naming=(A,), successors=(successor("active"),))
    back = settle(done, seen, 1.0)
    assert (back.state, back.reason) == ("rolled_back", f"{A} means v1 again")
    assert settle(back, seen, 2.0) == back
    better = Seen(naming=(A,), successors=(successor("active"), successor("active", "v1-newer", 2.0)))
    assert settle(back, better, 3.0).state == "trained"


def test_an_alias_that_goes_its_own_way_to_the_new_base_is_cut_over() -> None:
    """A customer may deploy any version on the new base by hand."""
    assert settle(item("requested", aliases=(A,)), Seen(moved=(A,)), 1.0).state == "cut_over"


def test_a_successor_that_is_lost_before_the_cut_over_fails_the_item() -> None:
    trained = item("trained", aliases=(A,), successor_id="v1-new")
    assert settle(trained, Seen(naming=(A,), successors=(successor("retired"),)), 1.0).state == "failed"


SEEN = st.builds(
    Seen,
    naming=st.sets(st.sampled_from([A, B])).map(lambda names: tuple(sorted(names))),
    moved=st.sets(st.sampled_from([A, B])).map(lambda names: tuple(sorted(names))),
    successors=st.lists(
        st.builds(
            Successor,
            adapter_id=st.sampled_from(["one", "two"]),
            status=st.sampled_from(STATES),
            reason=st.just("why"),
            registered_at_s=st.sampled_from([1.0, 2.0]),
        ),
        max_size=2,
    ).map(tuple),
    blocked=st.none() | st.just("no dataset"),
    holding=st.booleans(),
)
ITEMS = st.builds(
    item,
    st.sampled_from(ITEM_STATES),
    aliases=st.sampled_from([(), (A,), (A, B)]),
    moved=st.sampled_from([(), (A,), (B,)]),
    successor_id=st.none() | st.sampled_from(["one", "two"]),
)


@given(ITEMS, SEEN)
def test_whatever_is_seen_is_understood_and_comes_to_rest(start: Item, seen: Seen) -> None:
    """No state is left without a way on, and nothing goes round in circles: each step may be told of."""
    states = [start]
    while (after := settle(states[-1], seen, 1.0)) != states[-1]:
        states.append(after)
        assert len(states) < 5
    assert states[-1].state == "done" or set(states[-1].aliases) == set(seen.naming)


def test_what_is_done_stays_done() -> None:
    for target in ITEM_STATES:
        with pytest.raises(IllegalMove, match="done in its migration and cannot become"):
            move_items.step(item("done"), target, "", 1.0)
    assert move_items.finish(item("done"), 1.0) == item("done")


@pytest.mark.parametrize(
    ("state", "target"),
    [("planned", "rolled_back"), ("failed", "rolled_back"), ("trained", "requested"), ("cut_over", "requested"),
     ("requested", "held")],
)  # fmt: skip
def test_illegal_steps_are_refused(state: str, target: str) -> None:
    with pytest.raises(IllegalMove, match=f"is {state} in its migration and cannot become {target}"):
        move_items.step(item(state), target, "", 1.0)


def test_a_retraining_is_overdue_after_its_deadline_and_nothing_else_is() -> None:
    assert not move_items.is_overdue(item("requested"), 10.0, 10.0)
    assert move_items.is_overdue(item("requested"), 10.1, 10.0)
    assert not move_items.is_overdue(item("trained"), 10.1, 10.0)
