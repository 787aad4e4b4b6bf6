"""Assignments: put together from shards, whatever their order; an older epoch has no say."""

from __future__ import annotations

from itertools import permutations

import pytest

from services.replica_worker.core.assignment import Assignment, fold, without
from shared.contracts.catalog import ASSIGNMENT
from shared.contracts.codec import decode, encode
from shared.messages.desired import AssignedAdapter, AssignmentShard


def shard(epoch: int, index: int, shards: int, *names: str, tier: str = "ram") -> AssignmentShard:
    adapters = tuple(AssignedAdapter(adapter_id=n, digest="0" * 64, role="owner", tier=tier) for n in names)
    message = AssignmentShard(
        replica_id="replica-1", pool_id="p", epoch=epoch, shard=index, shards=shards, adapters=adapters
    )
    return decode(ASSIGNMENT, encode(ASSIGNMENT, message))


def names(assignment: Assignment) -> set[str]:
    return {key.adapter_id for key in assignment.wanted()}


def test_shards_add_up_and_a_newer_value_replaces_its_own() -> None:
    assignment = fold(fold(Assignment(), shard(1, 0, 2, "a")), shard(1, 1, 2, "b"))
    assert names(assignment) == {"a", "b"}
    assert names(fold(assignment, shard(1, 0, 2, "c"))) == {"b", "c"}


def test_the_hotter_come_first_whatever_their_tier_and_their_shard() -> None:
    heats = {"cold-gpu": ("gpu", 0), "hot-ram": ("ram", 3), "hot-gpu": ("gpu", 3), "hottest-disk": ("disk", 9)}
    assignment = Assignment()
    for index, (name, (tier, heat)) in enumerate(heats.items()):
        named = AssignedAdapter(adapter_id=name, digest="0" * 64, role="owner", tier=tier, heat=heat)
        message = AssignmentShard(
            replica_id="replica-1", pool_id="p", epoch=1, shard=index, shards=len(heats), adapters=(named,)
        )
        assignment = fold(assignment, decode(ASSIGNMENT, encode(ASSIGNMENT, message)))
    order = [key.adapter_id for key in assignment.wanted()]
    assert order == ["hottest-disk", "hot-gpu", "hot-ram", "cold-gpu"]


def test_an_older_epoch_is_ignored_and_says_so() -> None:
    assignment = fold(Assignment(), shard(5, 0, 1, "new"))
    after = fold(assignment, shard(4, 0, 1, "old"))
    assert names(after) == {"new"}
    assert after.reason == "ignored a shard of epoch 4: epoch 5 has spoken"


def test_shards_beyond_the_newest_count_are_left_over() -> None:
    assignment = fold(fold(Assignment(), shard(1, 0, 2, "a")), shard(1, 1, 2, "b"))
    shrunk = fold(assignment, shard(2, 0, 1, "a"))
    assert names(shrunk) == {"a"}
    assert names(fold(shrunk, shard(2, 3, 1, "stale"))) == {"a"}


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_order_of_a_watch_does_not_matter(order: tuple[int, ...]) -> None:
    told = [shard(2, 0, 2, "a"), shard(2, 1, 2, "b"), shard(1, 2, 3, "left over"), shard(1, 0, 3, "older")]
    assignment = Assignment()
    for at in (*order, *order):
        assignment = fold(assignment, told[at])
    assert (names(assignment), assignment.epoch) == ({"a", "b"}, 2)


def test_a_deleted_shard_holds_nothing() -> None:
    assignment = without(fold(Assignment(), shard(1, 0, 1, "a")), 0)
    assert assignment.wanted() == {}
    assert without(assignment, 7).wanted() == {}


def test_higher_tiers_come_first() -> None:
    assignment = Assignment()
    for index, tier in enumerate(("disk", "gpu", "ram")):
        assignment = fold(assignment, shard(1, index, 3, f"for-{tier}", tier=tier))
    assert [key.adapter_id for key in assignment.wanted()] == ["for-gpu", "for-ram", "for-disk"]
