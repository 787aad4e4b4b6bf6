"""The KV cache of a replica, in blocks: who fits, and what is found again of those that were out for a while.

Of cached prefixes it knows only those of sequences that were paused or thrown out: other prompts never begin alike.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection

from loadtest.twin.sequence import BLOCK_TOKENS, BatchShape, Sequence, blocks_for

Produced = Callable[[Sequence], int]


class Cache:
    """Nothing is counted block by block while all that run fit with all that they can come to need."""

    def __init__(self, shape: BatchShape) -> None:
        self._blocks = blocks_for(shape.kv_tokens + 1 - BLOCK_TOKENS)
        self._prefix_cache = shape.prefix_cache
        self._reserved = 0
        self._covered: dict[Sequence, int] = {}
        """Blocks that the step which is being planned has given so far, beyond what its tokens fill."""
        self._left: OrderedDict[Sequence, int] = OrderedDict()
        """Blocks of those that come back, the first to leave first."""

    @property
    def tight(self) -> bool:
        """Not all that run can have what they may come to need."""
        return self._reserved > self._blocks

    @property
    def total_tokens(self) -> int:
        return self._blocks * BLOCK_TOKENS

    def used_tokens(self, running: Collection[Sequence], produced: Produced) -> int:
        """In whole blocks, those of the token that is being computed included; what is only kept for those that come
        back does not count."""
        decoding = [each for each in running if each.since_step >= 0]
        blocks = sum(self._held(each, produced) for each in running if each.since_step < 0)
        if decoding:
            steps = produced(decoding[0]) - decoding[0].produced + decoding[0].since_step  # the same for all of them
            blocks += sum(blocks_for(each.prompt_tokens + each.produced + steps - each.since_step) for each in decoding)
        return BLOCK_TOKENS * blocks

    def begin(self) -> None:
        """A step is planned: nobody has got anything for it yet."""
        self._covered = {}

    def enter(self, sequence: Sequence) -> int:
        """Returns how many of its tokens are there already."""
        self._reserved += _most(sequence)
        if self._left.pop(sequence, None) is None:
            return 0
        return min(sequence.kept, (sequence.known - 1) // BLOCK_TOKENS * BLOCK_TOKENS)

    def leave(self, sequence: Sequence, *, returns: bool) -> None:
        self._reserved -= _most(sequence)
        self._covered.pop(sequence, None)
        tokens = sequence.known - 1 if sequence.since_step >= 0 else sequence.cached
        sequence.kept = tokens // BLOCK_TOKENS * BLOCK_TOKENS
        if returns and self._prefix_cache and sequence.kept:
            self._left[sequence] = sequence.kept // BLOCK_TOKENS

    def has_room(self, sequence: Sequence, running: Collection[Sequence], produced: Produced) -> bool:
        """All its tokens so far must fit beside those of the others, and leave each of them a block to grow."""
        wanted = blocks_for(sequence.known) + len(running)
        if not running or self._reserved + wanted <= self._blocks:
            return True
        held = sum(blocks_for(each.prompt_tokens + produced(each)) for each in running)
        return held + wanted <= self._blocks

    def covers(self, sequence: Sequence, stop: int, running: Collection[Sequence], produced: Produced) -> bool:
        """Give it blocks for its first `stop` tokens, if there are enough; those that left give theirs up first."""
        others = sum(self._held(each, produced) for each in running if each is not sequence)
        if others + blocks_for(stop) > self._blocks:
            return False
        self._covered[sequence] = blocks_for(stop)
        while self._left and others + blocks_for(stop) + sum(self._left.values()) > self._blocks:
            self._left.popitem(last=False)
        return True

    def steps_left(self, running: Collection[Sequence], produced: Produced) -> int:
        """How many steps fit for certain, the one included that is covered: a row takes a block every so often."""
        free = self._blocks - sum(self._held(each, produced) for each in running)
        return 1 + BLOCK_TOKENS * (free // max(1, len(running)))

    def missing(self, running: Collection[Sequence], produced: Produced) -> int:
        """How many more blocks are held than there are."""
        return sum(self._held(each, produced) for each in running) - self._blocks

    def _held(self, sequence: Sequence, produced: Produced) -> int:
        covered = self._covered.get(sequence)
        if covered is not None:
            return covered
        tokens = sequence.cached if sequence.since_step < 0 else sequence.prompt_tokens + produced(sequence) - 1
        return blocks_for(tokens)


def _most(sequence: Sequence) -> int:
    return blocks_for(sequence.prompt_tokens + sequence.output_tokens)
