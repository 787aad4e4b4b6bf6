"""Assignments in parts: small enough for the bus, and stable enough that little is rewritten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.placement.core.shards import SHARD_LIMIT, ShardKey, differences, split, still_held
from shared.contracts.catalog import ASSIGNMENT
from shared.contracts.codec import decode, encode
from shared.contracts.streams import MAX_MESSAGE_BYTES
from shared.messages.desired import AssignedAdapter, AssignmentShard
from tests.simulation.speakers import POOL, adapter


def assigned(adapter_id: str, tier: str = "ram") -> AssignedAdapter:
    record = adapter(adapter_id)
    return AssignedAdapter(adapter_id=adapter_id, digest=record.digest, role="owner", tier=tier)


def cut(adapters: list[AssignedAdapter], epoch: int = 1, limit: int = SHARD_LIMIT) -> dict[ShardKey, AssignmentShard]:
    return split("r1", POOL, epoch, adapters, limit)


@given(st.sets(st.integers(0, 10_000), max_size=60), st.integers(1, 8))
def test_every_adapter_is_in_exactly_one_shard(numbers: set[int], limit: int) -> None:
    shards = cut([assigned(f"a{number}") for number in numbers], limit=limit)
    placed = [found.adapter_id for shard in shards.values() for found in shard.adapters]
    assert sorted(placed) == sorted(f"a{number}" for number in numbers)
    assert all(len(shard.adapters) <= limit for shard in shards.values())
    assert [(key, shard.shard, shard.shards) for key, shard in shards.items()] == [
        (("r1", str(number)), number, len(shards)) for number in range(len(shards))
    ]


def test_nothing_to_hold_is_a_statement_too() -> None:
    assert [shard.adapters for shard in cut([]).values()] == [()]


def test_one_more_adapter_rewrites_one_shard() -> None:
    adapters = [assigned(f"a{number}") for number in range(5_000)]
    before, after = cut(adapters), cut([*adapters, assigned("one-more")])
    assert len(before) == 4
    assert len(differences(before, after).puts) == 1


def test_the_largest_shard_fits_the_bus() -> None:
    longest = [assigned(f"{'x' * 120}-{number:07}") for number in range(SHARD_LIMIT)]
    (shard,) = cut(longest).values()
    payload = encode(ASSIGNMENT, shard)
    assert len(payload) < MAX_MESSAGE_BYTES
    assert decode(ASSIGNMENT, payload) == shard


def test_the_same_again_is_no_difference_and_a_new_epoch_is() -> None:
    shards = cut([assigned("a")])
    assert differences(shards, cut([assigned("a")])).puts == ()
    assert len(differences(shards, cut([assigned("a")], epoch=2)).puts) == 1


def seen_by_a_reader(shards: dict[ShardKey, AssignmentShard]) -> set[str]:
    return {found.adapter_id for shard in shards.values() for found in shard.adapters}


@given(st.integers(0, 40), st.integers(0, 40))
def test_no_reader_misses_an_adapter_while_shards_are_cut_anew(before: int, after: int) -> None:
    stored = cut([assigned(f"a{number}") for number in range(before)], limit=4)
    wanted = cut([assigned(f"a{number}") for number in range(after)], limit=4)
    lasting = {f"a{number}" for number in range(min(before, after))}
    changes = differences(stored, wanted)
    for key, shard in changes.puts:
        stored[key] = shard
        assert lasting <= seen_by_a_reader(stored)
    for key in changes.deletes:
        del stored[key]
    assert stored == wanted


def test_a_draining_replica_keeps_what_still_exists_and_each_once() -> None:
    whole = cut([assigned("a"), assigned("b"), assigned("gone")])
    halves = cut([assigned("a"), assigned("b"), assigned("gone")], limit=2)
    placed = {name: adapter(name) for name in ("a", "b", "new")}
    kept = still_held([*whole.values(), *halves.values()], "r1", placed)
    assert sorted(found.adapter_id for found in kept) == ["a", "b"]
