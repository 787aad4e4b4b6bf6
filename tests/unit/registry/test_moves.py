"""Migrations: what becomes of each adapter, what may be done when, and what the whole costs."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.registry.core import move_items, moves
from services.registry.core.aliases import Denied
from services.registry.core.lifecycle import IllegalMove, Move
from services.registry.core.move_items import ITEM_STATES, Item, Seen, Successor, settle
from services.registry.core.move_plan import Terms, Use, blocked, decide_start, plan_row, totals
from services.registry.core.move_progress import StateCount, progress
from services.registry.core.moves import Migration, Turn
from services.registry.core.pointers import Pointer, decide_unneeded, told
from services.registry.core.records import StoredAdapter, accepted
from services.registry.core.verify import FileFacts
from shared.messages.adapters import STATES
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE, announcement, file_of

OLD, NEW = BASE, msgspec.structs.replace(BASE, base_model_hash="cd" * 32, name="new-base")
A, B = "acme/a:prod", "acme/b:prod"


def migration(**said: Any) -> Migration:
    given_: dict[str, Any] = {
        "migration_id": "m1", "from_base_model_hash": OLD.base_model_hash, "to_base_model_hash": NEW.base_model_hash,
        "state": "running", "reason": "", "gpu_hours_each": 0.5, "cost_per_gpu_hour": 2.5, "created_at_s": 0.0,
        "updated_at_s": 0.0,
    }  # fmt: skip
    return Migration(**{**given_, **said})


def item(state: str = "planned", **said: Any) -> Item:
    return Item(
        **{"migration_id": "m1", "adapter_id": "v1", "tenant_id": "acme", "reason": "", "updated_at_s": 0.0, **said},
        state=state,
    )


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


# -- the migration -------------------------------------------------------------------------------------


WISH = Turn(actor="ann", reason="why")


@pytest.mark.parametrize(
    ("state", "targets"),
    [
        ("running", {"held", "finishing", "cancelled"}),
        ("held", {"running", "cancelled"}),
        ("finishing", {"running", "finished"}),
        ("finished", set()),
        ("cancelled", set()),
    ],
)
def test_a_migration_turns_only_where_it_may(state: str, targets: set[str]) -> None:
    every = {"running", "held", "finishing", "finished", "cancelled"}
    for target in every - {state}:
        turned = moves.turn(migration(state=state), target, WISH, 5.0)
        if target in targets:
            assert isinstance(turned, Migration)
            assert (turned.state, turned.actor, turned.reason, turned.updated_at_s) == (target, "ann", "why", 5.0)
        else:
            assert isinstance(turned, Denied)
            assert (turned.kind, turned.code) == ("conflict", f"migration_{state}")
    assert moves.turn(migration(state=state), state, WISH, 5.0) == migration(state=state)


@pytest.mark.parametrize("state", ["held", "finishing", "finished", "cancelled"])
def test_aliases_are_moved_and_adapters_asked_for_only_while_it_is_running(state: str) -> None:
    there = migration(state=state)
    for fault in (moves.unready(there, item("trained"), A), moves.retry(there, item("failed"), "v1", 1.0)):
        assert isinstance(fault, Denied)
        assert fault.code == f"migration_{state}"


def test_an_alias_goes_back_while_a_migration_is_held() -> None:
    assert moves.irrevocable(migration(state="held"), item("cut_over"), A) is None
    assert moves.irrevocable(migration(), None, A) == moves.not_in_migration(migration(), A)
    refused = moves.irrevocable(migration(state="cancelled"), item("cut_over"), A)
    assert refused is not None
    assert refused.code == "migration_cancelled"


@pytest.mark.parametrize("state", ["planned", "requested", "failed", "held"])
def test_an_alias_waits_for_a_successor_that_passed(state: str) -> None:
    refused = moves.unready(migration(), item(state, reason="as it says"), A)
    assert refused is not None
    assert (refused.code, "as it says" in refused.message) == ("successor_not_ready", True)


def test_only_what_failed_is_asked_for_again() -> None:
    assert moves.retry(migration(), item("requested"), "v1", 1.0) == item("requested")
    for found, code in ((item("trained"), "item_not_failed"), (None, "adapter_not_in_migration")):
        refused = moves.retry(migration(), found, "v1", 1.0)
        assert isinstance(refused, Denied)
        assert refused.code == code


def test_a_base_is_left_by_one_migration_at_a_time() -> None:
    third = "ef" * 32
    assert decide_start(migration(), [migration(migration_id="m0")]) == migration(migration_id="m0")
    for origin, target in itertools.permutations([OLD.base_model_hash, NEW.base_model_hash, third], 2):
        wish = migration(from_base_model_hash=origin, to_base_model_hash=target)
        decided = decide_start(wish, [migration(migration_id="m0")])
        if (origin, target) == (third, NEW.base_model_hash):
            assert decided == wish
        elif origin != OLD.base_model_hash or target != NEW.base_model_hash:
            assert isinstance(decided, Denied)
            assert (decided.code, "m0" in decided.message) == ("migration_open", True)


# -- the plan ------------------------------------------------------------------------------------------


def stored(**changes: Any) -> StoredAdapter:
    file = file_of()
    announced = announcement(file, **{"dataset_uri": "s3://data/acme", **changes})
    step = Move(state="active", reason="", at_s=0.0)
    return accepted(announced, OLD, FileFacts(size_bytes=len(file), digest=announced.checksum), "key", step)


def test_what_can_be_trained_again_costs_its_hours() -> None:
    row = plan_row(stored(), NEW, Use(aliases=(A,), requests_per_day=12.5), Terms())
    assert (row.action, row.gpu_hours, row.usd) == ("retrain", 0.5, 1.25)
    assert row.to_pool_id == pool_id(NEW.base_model_hash, 8)


def test_what_cannot_be_trained_again_says_every_reason() -> None:
    narrow = msgspec.structs.replace(
        NEW, rank_classes=(8,), layers=1, modules={name: NEW.modules[name] for name in ("q_proj", "v_proj")}
    )
    adapter = stored(dataset_uri=None, rank=16, target_modules=("model.layers.1.self_attn.q_proj", "down_proj"))
    why = blocked(adapter, narrow)
    assert why is not None
    for part in ("without a dataset_uri", "rank is 16", "new-base is 8", "new-base has no down_proj, layer 1"):
        assert part in why
    row = plan_row(adapter, narrow, Use(aliases=(A,)), Terms())
    assert (row.action, row.reason, row.to_pool_id, row.usd) == ("blocked", why, None, 0.0)


def test_what_no_alias_means_is_retired_for_nothing() -> None:
    row = plan_row(stored(dataset_uri=None), NEW, Use(), Terms())
    assert (row.action, row.gpu_hours) == ("retire", 0.0)


def test_the_totals_count_every_alias_once() -> None:
    uses = (Use(aliases=(A, B), requests_per_day=1.0), Use(aliases=(B,), requests_per_day=2.0), Use())
    rows = [plan_row(stored(), NEW, use, Terms(gpu_hours_each=2.0, usd_per_gpu_hour=3.0)) for use in uses]
    found = totals(rows)
    assert (found.adapters, found.aliases, found.retrain, found.retire, found.blocked) == (3, 2, 2, 1, 0)
    assert (found.requests_per_day, found.gpu_hours, found.usd) == (3.0, 4.0, 12.0)


def test_what_is_left_is_what_an_alias_means_and_has_no_successor() -> None:
    counts = [
        StateCount(state="planned", items=5, named=1, aliases_left=1, aliases_moved=0),
        StateCount(state="requested", items=2, named=2, aliases_left=3, aliases_moved=0),
        StateCount(state="cut_over", items=4, named=0, aliases_left=0, aliases_moved=4),
    ]
    found = progress(migration(), counts, overdue=1)
    assert (found.items, found.untrained, found.aliases_left, found.aliases_moved, found.overdue) == (11, 3, 4, 4, 1)
    assert (found.gpu_hours_left, found.usd_left) == (1.5, 3.75)
    assert found.by_state == {"planned": 5, "requested": 2, "cut_over": 4}


# -- what points at a base -----------------------------------------------------------------------------


def test_a_base_is_unneeded_once_nothing_points_at_it() -> None:
    assert decide_unneeded("small-base", []) is None
    pointers = [
        Pointer(kind="adapter", name="active", adapter_id="v1"),
        *(Pointer(kind="alias", name=name, adapter_id="v1") for name in (B, A)),
    ]
    needed = decide_unneeded("small-base", pointers)
    assert needed is not None
    assert needed.message == "Base model small-base cannot go: 2 aliases, 1 adapter still point at it."
    assert [one.message for one in told(needed)] == [
        f"Alias {A} means v1.", f"Alias {B} means v1.", "Adapter v1 is active.",
    ]  # fmt: skip
