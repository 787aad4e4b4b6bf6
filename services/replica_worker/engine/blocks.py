"""The blocks of a KV cache, as numbers: who uses which, and which hold a prefix that can be used again.

Keys and values of a token depend on the tokens before it and on the adapter, so a full block can serve
every sequence that begins with the same tokens, under the same digest; the salt keeps customers from
learning of one another what they asked. What a block holds is the engine's business.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

BLOCK_TOKENS = 16


class PrefixKey(NamedTuple):
    """All that decides what a full block holds and who may read it. `chain` is a hash over the tokens of
    this block and of all blocks before it."""

    digest: str
    salt: str
    chain: bytes


def extend_keys(keys: list[PrefixKey], digest: str, salt: str, token_ids: Sequence[int]) -> None:
    """Append the keys of the full blocks of `token_ids` that have none yet. `digest` is "" for the base."""
    for start in range(len(keys) * BLOCK_TOKENS, len(token_ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        before = keys[-1].chain if keys else b""
        tokens = array("q", token_ids[start : start + BLOCK_TOKENS]).tobytes()
        chain = hashlib.blake2b(before + tokens, digest_size=32).digest()
        keys.append(PrefixKey(digest, salt, chain))


def blocks_for(tokens: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)


class BlockPool:
    """Block ids 0 … size - 1. Each is *in use* by a counted number of holders, *idle* (a cached prefix that
    nobody uses, given away when no blank block is left, least recently used first), or *blank*."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._holders = [0] * size
        self._blank = list(reversed(range(size)))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._block_of: dict[PrefixKey, int] = {}
        self._key_of: dict[int, PrefixKey] = {}

    @property
    def available(self) -> int:
        """How many blocks `take` can give."""
        return len(self._blank) + len(self._idle)

    @property
    def in_use(self) -> int:
        return self.size - self.available

    def take(self, count: int) -> list[int] | None:
        """So many blocks with one holder and no meaning, or None, and nothing has changed, if there are fewer."""
        if count > self.available:
            return None
        taken = [self._blank.pop() if self._blank else self._evict() for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
        return taken

    def match(self, keys: Iterable[PrefixKey]) -> list[int]:
        """The blocks of the longest cached run of these keys, from the first one on. Nobody holds them by that."""
        found = []
        for key in keys:
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def idle_among(self, blocks: Iterable[int]) -> int:
        """How many of these would be lost to `take` if somebody held them."""
        return sum(block in self._idle for block in blocks)

    def hold(self, blocks: Iterable[int]) -> None:
        """One more holder for each of these cached blocks."""
        for block in blocks:
            self._idle.pop(block, None)
            self._holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One holder less for each. The last blocks of a prefix become idle first, hence are given away
        first: without what is before it a block is of no use."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if block in self._key_of:
                self._idle[block] = None
            else:
                self._blank.append(block)

    def publish(self, block: int, key: PrefixKey) -> None:
        """From now on this full block, which its holder never writes again, can be matched. If another block
        has the key already, it stays that one."""
        if key not in self._block_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def retract(self, blocks: Iterable[int]) -> None:
        """Nobody finds these blocks any more; their holders keep what they have."""
        for block in blocks:
            if block in self._key_of:
                self._unpublish(block)
            if block in self._idle:
                del self._idle[block]
                self._blank.append(block)

    def forget(self, digest: str) -> None:
        """Nobody finds what was computed with this adapter any more."""
        self.retract([block for block, key in self._key_of.items() if key.digest == digest])

    def broken_invariants(self, held: Iterable[Sequence[int]]) -> list[str]:
        """What is wrong, derived anew from the blocks that every holder believes to have; empty if nothing is."""
        holders = Counter(block for blocks in held for block in blocks)
        broken = [
            f"block {block} counts {count} holders and has {holders[block]}"
            for block, count in enumerate(self._holders)
            if count != holders[block]
        ]
        resting = [*self._blank, *self._idle]
        if sorted([*resting, *(block for block, count in enumerate(self._holders) if count)]) != [*range(self.size)]:
            broken.append("blank, idle and held blocks are not each block once")
        if {block: key for key, block in self._block_of.items()} != self._key_of:
            broken.append("the prefix index and the keys of the blocks differ")
        broken += [f"blank block {block} has a key" for block in self._blank if block in self._key_of]
        broken += [f"idle block {block} has no key" for block in self._idle if block not in self._key_of]
        return broken

    def _evict(self) -> int:
        block, _ = self._idle.popitem(last=False)
        self._unpublish(block)
        return block

    def _unpublish(self, block: int) -> None:
        del self._block_of[self._key_of.pop(block)]
