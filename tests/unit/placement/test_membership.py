"""Reports and the clock decide who belongs to a pool."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.placement.core.membership import (
    MembershipPolicy,
    Seen,
    Standing,
    is_forgotten,
    judge,
    membership_of,
    observe,
    recall,
)
from shared.contracts.catalog import MEMBERSHIP
from shared.contracts.codec import decode, encode
from tests.simulation.speakers import POOL, report

POLICY = MembershipPolicy()


def heard(*reports: tuple[float, Any]) -> Seen:
    seen: Seen | None = None
    for at_s, said in reports:
        seen = observe(seen, said, at_s)
    assert seen is not None
    return seen


def standing(seen: Seen, now_s: float, *, drained: bool = False, rank_class: int | None = 16) -> Standing:
    return judge(seen, now_s, POLICY, drained=drained, rank_class=rank_class)


def test_a_new_replica_owns_nothing_until_it_reports_ready() -> None:
    joining = heard((0.0, report("r1", ready=False, reason="loading the base model")))
    before = standing(joining, 0.0)
    after = standing(observe(joining, report("r1", 2), 1.0), 1.0)
    assert (before.phase, before.owns, before.member.weight) == ("joining", False, 0.0)
    assert before.reason == "loading the base model"
    assert (after.phase, after.owns, after.member.weight) == ("ready", True, 1.0)


@pytest.mark.parametrize(
    ("now_s", "phase", "owns"),
    [(5.0, "ready", True), (5.1, "lost", True), (30.0, "lost", True), (30.1, "lost", False)],
)
def test_silence_ends_routing_first_and_ownership_after_the_grace(now_s: float, phase: str, owns: bool) -> None:
    found = standing(heard((0.0, report("r1"))), now_s)
    assert (found.phase, found.owns, found.member.ready) == (phase, owns, phase == "ready")


def test_a_lost_replica_says_for_how_long() -> None:
    assert standing(heard((0.0, report("r1"))), 7.25).reason == "no report for 7.2 s"


def test_it_is_forgotten_only_after_the_grace() -> None:
    seen = heard((0.0, report("r1")))
    assert not is_forgotten(seen, 30.0, POLICY)
    assert is_forgotten(seen, 30.1, POLICY)


def test_a_new_incarnation_keeps_its_place_while_it_starts() -> None:
    seen = heard((0.0, report("r1", 90)), (8.0, report("r1", 1, incarnation="second", ready=False)))
    found = standing(seen, 8.0)
    assert (found.phase, found.owns, found.member.incarnation) == ("restarting", True, "second")
    assert not found.member.ready


def test_a_replica_that_never_becomes_ready_again_loses_its_place_in_the_end() -> None:
    seen = heard((0.0, report("r1")))
    for second in range(1, 182):
        seen = observe(seen, report("r1", second, incarnation="second", ready=False), float(second))
    assert standing(seen, 180.0).owns
    assert not standing(seen, 181.0).owns


def test_a_crash_loop_neither_flaps_nor_lasts() -> None:
    seen = heard((0.0, report("r1")))
    for life in range(1, 60):
        seen = observe(seen, report("r1", 1, incarnation=f"life{life}", ready=False), 4.0 * life)
        assert standing(seen, 4.0 * life).owns == (4.0 * life <= POLICY.starting_grace_s)


@pytest.mark.parametrize("sequence", [3, 2])
def test_a_repeated_or_older_report_does_not_extend_a_life(sequence: int) -> None:
    seen = heard((0.0, report("r1", 3)))
    assert observe(seen, report("r1", sequence, ready=False), 4.0) is seen


def test_a_superseded_incarnation_does_not_come_back() -> None:
    seen = heard((0.0, report("r1", 5)), (1.0, report("r1", 1, incarnation="second")))
    assert observe(seen, report("r1", 6), 2.0) is seen


def test_another_pool_is_a_new_beginning() -> None:
    seen = heard((0.0, report("r1")), (1.0, report("r1", 1, incarnation="second", pool_id="other", ready=False)))
    found = standing(seen, 1.0, rank_class=None)
    assert (found.pool_id, found.phase, found.owns) == ("other", "joining", False)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_draining_replica_is_not_routed_to_and_owns_nothing_new(ordered: bool) -> None:
    found = standing(heard((0.0, report("r1", draining=not ordered))), 0.0, drained=ordered)
    assert (found.phase, found.owns, found.member.ready, found.member.draining) == ("draining", False, False, True)


def test_c70_a_rank_limit_below_the_pools_makes_a_replica_unfit() -> None:
    found = standing(heard((0.0, report("r1", rank_limit=8))), 0.0)
    assert (found.phase, found.owns, found.member.ready) == ("unfit", False, False)
    assert found.reason == "its rank limit 8 is below the pool's 16"


def test_recalled_members_keep_their_adapters_for_the_grace_and_are_not_routed_to() -> None:
    before = membership_of(POOL, [standing(heard((0.0, report("r1"))), 0.0)], 1, None)
    stored = decode(MEMBERSHIP, encode(MEMBERSHIP, before))
    seen = recall(stored, 0.0)["r1"]
    assert (standing(seen, 0.0).owns, standing(seen, 0.0).member.ready) == (True, False)
    assert not standing(seen, 30.1).owns
    assert standing(observe(seen, report("r1", 1), 2.0), 2.0).phase == "ready"


def test_recalled_members_that_owned_nothing_still_own_nothing() -> None:
    joining = standing(heard((0.0, report("r1", ready=False))), 0.0)
    seen = recall(membership_of(POOL, [joining], 1, None), 0.0)["r1"]
    assert not standing(seen, 0.0).owns


def test_revisions_count_changes_and_nothing_else() -> None:
    one, two = (standing(heard((0.0, report(name))), 0.0) for name in ("r1", "r2"))
    first = membership_of(POOL, [one], 3, None)
    assert (first.epoch, first.revision) == (3, 1)
    assert membership_of(POOL, [one], 3, first) is first
    second = membership_of(POOL, [two, one], 3, first)
    assert (second.revision, [member.replica_id for member in second.members]) == (2, ["r1", "r2"])
    assert membership_of(POOL, [two, one], 4, second).revision == 3


def test_only_the_pools_own_members_are_published() -> None:
    other = msgspec.structs.replace(standing(heard((0.0, report("r1"))), 0.0), pool_id="other")
    assert membership_of(POOL, [other], 1, None).members == ()
