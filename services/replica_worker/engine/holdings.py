"""Which sequence holds which blocks of the KV cache, and what it finds there of others' work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from services.replica_worker.engine.blocks import BLOCK_TOKENS, BlockPool, blocks_for
from services.replica_worker.engine.sequence import Sequence


class Holdings:
    """Position p of a sequence is in its block `blocks[p // BLOCK_TOKENS]`. A sequence writes only at and
    after its `cached_tokens`, where no block is shared."""

    def __init__(self, blocks: int, prefix_cache: bool) -> None:
        self.pool = BlockPool(blocks)
        self._prefix_cache = prefix_cache

    def missing(self, sequence: Sequence) -> int:
        """How many more blocks it needs for all the tokens it has now."""
        return blocks_for(len(sequence.token_ids)) - len(sequence.blocks)

    def would_leave(self, sequence: Sequence) -> int:
        """How many blocks would be available if a sequence without any got all that it needs; below 0: too few."""
        found = self._findable(sequence)
        return self.pool.available - self.pool.idle_among(found) - self.missing(sequence) + len(found)

    def reuse(self, sequence: Sequence) -> None:
        """Take over what others have computed of its next blocks; at least one token is left to be computed."""
        found = self._findable(sequence)
        if found:
            self.pool.hold(found)
            sequence.find(found)

    def cover(self, sequence: Sequence, tokens: int) -> bool:
        """Give it blocks for its first `tokens` tokens. False, and nothing has changed, if there are too few."""
        more = blocks_for(tokens) - len(sequence.blocks)
        taken = self.pool.take(more) if more > 0 else []
        if taken is None:
            return False
        sequence.blocks += taken
        return True

    def publish(self, sequence: Sequence) -> None:
        """Let others find its full blocks, now that they are computed."""
        full = sequence.cached_tokens // BLOCK_TOKENS
        if full == sequence.published_blocks or not self._shares(sequence):
            return
        keys = sequence.prefix_keys()
        for at in range(sequence.published_blocks, full):
            self.pool.publish(sequence.blocks[at], keys[at])
        sequence.published_blocks = full

    def give_up(self, sequence: Sequence) -> None:
        """It holds nothing any more; what it had published can be found until the blocks are needed."""
        self.pool.release(sequence.blocks)
        sequence.lose_cache()

    def distrust(self, sequence: Sequence, running: Iterable[Sequence]) -> None:
        """What it computed, or found, made it fail: nobody else shall find it, nor what those compute whom it
        reached already."""
        suspect = set(sequence.blocks)
        for other in running:
            other.private |= not suspect.isdisjoint(other.blocks)
        self.pool.retract(sequence.blocks)

    def forget(self, digest: str, running: Iterable[Sequence]) -> None:
        """Nobody shall find what was computed with this adapter, nor what is being computed with it."""
        for sequence in running:
            sequence.private |= sequence.digest == digest
        self.pool.forget(digest)

    def broken_invariants(self, running: Collection[Sequence]) -> list[str]:
        """What is wrong if these are all that hold blocks; empty if nothing is."""
        broken = self.pool.broken_invariants([sequence.blocks for sequence in running])
        holders = Counter(block for sequence in running for block in sequence.blocks)
        for sequence in running:
            name = sequence.request.request_id
            if blocks_for(sequence.cached_tokens) > len(sequence.blocks):
                broken.append(f"{name} has {sequence.cached_tokens} tokens in {len(sequence.blocks)} blocks")
            written = sequence.blocks[sequence.cached_tokens // BLOCK_TOKENS :]
            broken += [f"{name} writes block {block}, which others hold" for block in written if holders[block] > 1]
        return broken

    def _findable(self, sequence: Sequence) -> list[int]:
        """Cached blocks that come next after its own, if it stands at the end of a block."""
        at = len(sequence.blocks)
        if sequence.cached_tokens != at * BLOCK_TOKENS or not self._shares(sequence):
            return []
        usable = (len(sequence.token_ids) - 1) // BLOCK_TOKENS
        return self.pool.match(sequence.prefix_keys()[at:usable])

    def _shares(self, sequence: Sequence) -> bool:
        return self._prefix_cache and not sequence.private
