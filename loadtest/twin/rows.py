"""Who has a row of a replica's engine, who waits for one, and what of prompts the next step computes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from loadtest.twin.cache import Cache
from loadtest.twin.sequence import BLOCK_TOKENS, BatchShape, Sequence
from loadtest.twin.timing import pairs

FOR_EVER = 1 << 40


class Rows:
    """Rows are given in the order of arrival. `produced` says how many tokens a sequence has now."""

    def __init__(self, shape: BatchShape, produced: Callable[[Sequence], int]) -> None:
        self.running: dict[Sequence, None] = {}
        self.waiting: deque[Sequence] = deque()
        self.prefilling: list[Sequence] = []
        self.pieces: list[tuple[Sequence, int]] = []
        """Prompts of this step, and how far it takes each."""
        self.preemptions = 0
        self._shape = shape
        self._produced = produced
        self._cache = Cache(shape)
        self._adapters: Counter[object] = Counter()

    @property
    def adapters(self) -> int:
        """How many different ones run."""
        return len(self._adapters)

    @property
    def decoding(self) -> int:
        return len(self.running) - len(self.prefilling)

    @property
    def kv_used_tokens(self) -> int:
        return self._cache.used_tokens(self.running, self._produced)

    @property
    def kv_total_tokens(self) -> int:
        return self._cache.total_tokens

    def admit(self) -> None:
        while self.waiting and len(self.running) < self._shape.max_rows:
            sequence = self.waiting[0]
            if not self._cache.has_room(sequence, self.running, self._produced):
                return
            self.waiting.popleft()
            self.running[sequence] = None
            self.prefilling.append(sequence)
            self._adapters[sequence.adapter] += 1
            sequence.turn += 1
            sequence.cached = self._cache.enter(sequence)

    def release(self, sequence: Sequence, *, returns: bool = False) -> None:
        """`returns`: it is to go on later, and may find what it computed. Its `produced` is exact by now."""
        del self.running[sequence]
        if sequence.since_step < 0:
            self.prefilling.remove(sequence)
        self._adapters[sequence.adapter] -= 1
        if not self._adapters[sequence.adapter]:
            del self._adapters[sequence.adapter]
        self._cache.leave(sequence, returns=returns)
        sequence.since_step = sequence.served_step = -1
        sequence.cached = 0

    def plan(self) -> int:
        """Choose the pieces of prompts for the next step; returns for how many steps the cache is large enough, if
        they are all alike."""
        if self.prefilling:
            self._chunk()
        return self._within_cache() if self._cache.tight else FOR_EVER

    def prompt_tokens(self) -> int:
        """Of the pieces, as far as they take time: a single one is like a row that decodes."""
        sizes = [stop - sequence.cached for sequence, stop in self.pieces]
        return sum(size for size in sizes if size > 1)

    def prompt_pairs(self) -> float:
        """Of the pieces' tokens with those before them."""
        return sum(pairs(sequence.cached, stop) for sequence, stop in self.pieces if stop - sequence.cached > 1)

    def advance(self, step: int) -> list[Sequence]:
        """What step number `step` computed of prompts; returns those whose next token came out of it."""
        sampled = []
        for sequence, stop in self.pieces:
            if sequence not in self.running:
                continue
            sequence.cached, sequence.served_step = stop, step
            if stop == sequence.known:
                self.prefilling.remove(sequence)
                sequence.produced += 1
                sequence.since_step = step
                sampled.append(sequence)
        self.pieces = []
        return sampled

    def blocks_missing(self) -> int:
        return self._cache.missing(self.running, self._produced)

    def _chunk(self) -> None:
        left = self._shape.chunk_tokens
        for sequence in sorted(self.prefilling, key=_served) if len(self.prefilling) > 1 else self.prefilling:
            if sequence.known - sequence.cached == 1:
                self.pieces.append((sequence, sequence.known))
                continue
            end = sequence.cached + left
            stop = sequence.known if end >= sequence.known else end - end % BLOCK_TOKENS
            if stop > sequence.cached:
                self.pieces.append((sequence, stop))
                left -= stop - sequence.cached

    def _within_cache(self) -> int:
        """Throw out the youngest until the step fits."""
        cache = self._cache
        cache.begin()
        for sequence, stop in [*self._next_tokens(), *self.pieces]:
            while sequence in self.running and not cache.covers(sequence, stop, self.running, self._produced):
                youngest = max(self.running, key=_arrival)
                youngest.produced = self._produced(youngest)
                self.release(youngest, returns=True)
                self.waiting.appendleft(youngest)
                self.preemptions += 1
        self.pieces = [piece for piece in self.pieces if piece[0] in self.running]
        return cache.steps_left(self.running, self._produced)

    def _next_tokens(self) -> list[tuple[Sequence, int]]:
        return [(each, each.prompt_tokens + self._produced(each)) for each in self.running if each.since_step >= 0]


def _served(sequence: Sequence) -> int:
    return sequence.served_step


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
