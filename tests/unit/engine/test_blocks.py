"""Blocks: none is lost, none is given twice, and a prefix is found by those who may find it only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.engine.blocks import BLOCK_TOKENS, BlockPool, PrefixKey, blocks_for, extend_keys


def keys_of(tokens: list[int], digest: str = "d", salt: str = "s") -> list[PrefixKey]:
    keys: list[PrefixKey] = []
    extend_keys(keys, digest, salt, tokens)
    return keys


def published(pool: BlockPool, keys: list[PrefixKey]) -> list[int]:
    """Blocks with these keys, held once."""
    blocks = pool.take(len(keys))
    assert blocks is not None
    for block, key in zip(blocks, keys, strict=True):
        pool.publish(block, key)
    return blocks


def test_only_full_blocks_have_keys() -> None:
    assert [len(keys_of([7] * count)) for count in (0, 15, 16, 31, 32)] == [0, 0, 1, 1, 2]
    assert [blocks_for(count) for count in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_keys_grow_with_the_tokens() -> None:
    tokens = [at * 7 % 50 for at in range(100)]
    keys: list[PrefixKey] = []
    for count in range(len(tokens)):
        extend_keys(keys, "d", "s", tokens[:count])
        assert keys == keys_of(tokens[:count])


@given(
    at=st.integers(0, 4 * BLOCK_TOKENS - 1),
    tokens=st.lists(st.integers(0, 50_000), min_size=4 * BLOCK_TOKENS, max_size=4 * BLOCK_TOKENS),
)
def test_one_other_token_changes_every_key_from_there_on(at: int, tokens: list[int]) -> None:
    other = [*tokens[:at], tokens[at] + 1, *tokens[at + 1 :]]
    same = [mine == theirs for mine, theirs in zip(keys_of(tokens), keys_of(other), strict=True)]
    assert same == [block < at // BLOCK_TOKENS for block in range(4)]


def test_c02_c57_nothing_is_found_under_another_digest_or_salt() -> None:
    pool, tokens = BlockPool(4), [5] * 40
    blocks = published(pool, keys_of(tokens, "version 1", "acme"))
    assert pool.match(keys_of(tokens, "version 1", "acme")) == blocks
    assert pool.match(keys_of(tokens, "version 2", "acme")) == []
    assert pool.match(keys_of(tokens, "version 1", "umbrella")) == []
    assert pool.match(keys_of(tokens, "", "acme")) == []


def test_there_are_blocks_for_all_or_for_none() -> None:
    pool = BlockPool(3)
    assert pool.take(4) is None
    assert pool.available == 3
    assert sorted(pool.take(3) or []) == [0, 1, 2]
    assert pool.take(1) is None
    assert pool.take(0) == []


def test_the_least_recently_used_prefix_goes_first_and_its_end_before_its_beginning() -> None:
    pool = BlockPool(4)
    old, young = keys_of([1] * 32), keys_of([2] * 32)
    for keys in (old, young):
        pool.release(published(pool, keys))
    pool.hold(pool.match(old))
    pool.release(pool.match(old))
    for left in (1, 0):
        pool.take(1)
        assert len(pool.match(young)) == left
        assert len(pool.match(old)) == 2
    pool.take(1)
    assert len(pool.match(old)) == 1


def test_a_prefix_in_use_is_never_given_away() -> None:
    pool = BlockPool(3)
    blocks = published(pool, keys_of([1] * 32))
    pool.hold(blocks)
    pool.release(blocks)
    assert (pool.available, pool.in_use) == (1, 2)
    assert pool.take(2) is None
    pool.release(blocks)
    assert pool.idle_among(blocks) == 2
    assert pool.take(3) is not None


def test_the_first_block_with_a_key_keeps_it() -> None:
    pool = BlockPool(2)
    first, second = published(pool, keys_of([1] * 16)), published(pool, keys_of([1] * 16))
    assert pool.match(keys_of([1] * 16)) == first != second
    pool.release(second)
    assert pool.match(keys_of([1] * 16)) == first
    assert pool.broken_invariants([first]) == []


def test_what_is_forgotten_is_not_found_and_not_taken_from_its_holders() -> None:
    pool = BlockPool(4)
    idle, busy, other = keys_of([1] * 16, "bad"), keys_of([2] * 16, "bad"), keys_of([1] * 16, "good")
    pool.release(published(pool, idle))
    held = published(pool, busy)
    kept = published(pool, other)
    pool.forget("bad")
    assert [len(pool.match(keys)) for keys in (idle, busy, other)] == [0, 0, 1]
    assert pool.broken_invariants([held, kept]) == []
    pool.release(held)
    assert pool.broken_invariants([kept]) == []


@given(st.lists(st.tuples(st.sampled_from(["take", "share", "release", "forget"]), st.integers(0, 20)), max_size=80))
def test_c23_no_reference_is_lost_nor_counted_twice(events: list[tuple[str, int]]) -> None:
    pool = BlockPool(6)
    held: list[list[int]] = []
    for event, number in events:
        keys = keys_of([number % 3] * 16 * (1 + number % 4), digest=str(number % 2))
        if event == "take" and (blocks := pool.take(len(keys))) is not None:
            held.append(blocks)
            for block, key in zip(blocks, keys, strict=number % 5 > 0):
                pool.publish(block, key)
        elif event == "share":
            held.append(pool.match(keys))
            pool.hold(held[-1])
        elif event == "release" and held:
            pool.release(held.pop(number % len(held)))
        elif event == "forget":
            pool.forget(str(number % 2))
        assert pool.broken_invariants(held) == []
    for blocks in held:
        pool.release(blocks)
    assert (pool.in_use, pool.available) == (0, 6)
    assert pool.broken_invariants([]) == []


def _lose_a_reference(pool: BlockPool) -> None:
    pool._holders[0] += 1


def _give_a_block_twice(pool: BlockPool) -> None:
    pool._blank.append(pool._blank[-1])


def _keep_an_evicted_key(pool: BlockPool) -> None:
    pool._block_of[PrefixKey("d", "s", b"gone")] = 3


def _idle_without_a_key(pool: BlockPool) -> None:
    pool._idle[pool._blank.pop()] = None


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (_lose_a_reference, "counts 2 holders and has 1"),
        (_give_a_block_twice, "not each block once"),
        (_keep_an_evicted_key, "index and the keys of the blocks differ"),
        (_idle_without_a_key, "has no key"),
    ],
)
def test_the_invariants_notice_a_planted_fault(fault: object, sentence: str) -> None:
    pool = BlockPool(4)
    held = [pool.take(1) or []]
    assert pool.broken_invariants(held) == []
    fault(pool)  # type: ignore[operator]
    assert any(sentence in broken for broken in pool.broken_invariants(held))
