"""A replica's engine: continuous batching with chunked prefill, in steps that are skipped while nothing changes.

It decides what `services/replica_worker/engine/schedule.py` and `batch.py` decide, without tokens: rows in the order of
arrival, decode rows first, then prompts by turns within the chunk, the youngest thrown out when no block of the KV
cache is left. Between two changes all steps are alike, so many are taken at once; a change takes effect when the step
during which it comes is over, as in the engine. Of the prefix cache it knows what a sequence finds of its own that was
paused or thrown out: other prompts never begin alike.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable

from loadtest.twin.agenda import Agenda
from loadtest.twin.cache import Cache
from loadtest.twin.sequence import BLOCK_TOKENS, BatchShape, Sequence
from loadtest.twin.timing import MeasuredTable, StepTable
from services.replica_worker.core.effect import probe_prompt

PROBE_TOKENS = len(probe_prompt(vocabulary_size=32_000))
"""Of the probe that proves a load, in a row of its own beside the others."""


OnStep = Callable[[list[Sequence], list[Sequence]], None]
"""Those that got the first token since they were submitted, and those that have ended."""


class Batch:
    def __init__(
        self, shape: BatchShape, steps: StepTable | MeasuredTable, agenda: Agenda, on_step: OnStep, draw: random.Random
    ) -> None:
        self.shape = shape
        self.running: dict[Sequence, None] = {}
        self.waiting: deque[Sequence] = deque()
        self.preemptions = 0
        self.alive = True
        self._table = steps
        self._agenda = agenda
        self._on_step = on_step
        self._draw = draw
        self._cache = Cache(shape)
        self._prefilling: list[Sequence] = []
        self._pieces: list[tuple[Sequence, int]] = []
        self._ends: list[tuple[int, int, int, Sequence]] = []
        self._probes: list[Callable[[], None]] = []
        self._probing: list[Callable[[], None]] = []
        self._adapters: Counter[object] = Counter()
        self._arrivals = 0
        self._steps = 0
        """Taken before the present stretch."""
        self._stretch = 0
        """How many steps alike are under way; 0: the engine stands still."""
        self._began_s = 0.0
        self._step_s = 0.0
        self._round = 0
        self._one_by_one = False
        self._held_until_s = 0.0
        self._produced = 0
        """Tokens of the steps before the present stretch, and of those that have left during it."""
        self.row_s = 0.0
        """Rows × seconds that were taken in steps that are over."""
        self._decoding = 0
        """How many produce a token in each step of the present stretch."""

    # -- what is asked of it ---------------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        self._arrivals += 1
        sequence.arrival = self._arrivals
        self.waiting.append(sequence)
        if not self._stretch:
            self._stretch = -1  # begins once all that happens at this moment has happened
            self._agenda.soon(self._begin)
        elif len(self.running) < self.shape.max_rows:
            self._cut()

    def withdraw(self, sequence: Sequence) -> None:
        """Take it out: it has ended, or it is paused. The step under way goes on without it."""
        if sequence in self.running:
            if sequence.since_step >= 0:
                self._produced += self.steps - self._steps
                self._decoding -= 1
            sequence.produced = self.produced(sequence)
            self._release(sequence, returns=True)
            self._cut()
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
            self._cut()  # who stood behind it may fit

    def probe(self, done: Callable[[], None]) -> None:
        """A few tokens in the next step, beside whatever runs."""
        self._probes.append(done)
        if not self._stretch:
            self._stretch = -1
            self._agenda.soon(self._begin)
        else:
            self._cut()

    def step_by_step(self, wanted: bool) -> None:
        """Whether `on_step` is to be called after every step, and not only after those that change something."""
        if wanted and not self._one_by_one:
            self._cut()
        self._one_by_one = wanted

    def hold(self, until_s: float) -> None:
        """The step under way takes at least until then."""
        self._cut()
        self._held_until_s = until_s

    def produced(self, sequence: Sequence) -> int:
        if sequence.since_step < 0:
            return sequence.produced
        return sequence.produced + self.steps - sequence.since_step

    @property
    def steps(self) -> int:
        """That are over."""
        if self._stretch <= 1:
            return self._steps
        over = math.floor((self._agenda.now_s - self._began_s) / self._step_s)
        return self._steps + min(max(over, 0), self._stretch - 1)

    @property
    def step_s(self) -> float:
        """Of the steps under way, or of the last ones."""
        return self._step_s

    def blocks_missing(self) -> int:
        return self._cache.missing(self.running, self.produced)

    @property
    def tokens(self) -> int:
        """Produced by all who were ever here."""
        return self._produced + self._decoding * (self.steps - self._steps)

    # -- steps -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._admit()
        if not self.running and not self._probes:
            self._stretch = 0
            return
        self._probing, self._probes = self._probes, []
        if self._prefilling:
            self._chunk()
        longest = self._within_cache() if self._cache.tight else _FOR_EVER
        prefill_tokens = PROBE_TOKENS * len(self._probing) + (self._prompt_tokens() if self._pieces else 0)
        alone = bool(self._pieces or self._probing or self._one_by_one)
        self._decoding = len(self.running) - len(self._prefilling)
        self._stretch = 1 if alone else min(longest, self._until_an_end())
        self._began_s = self._agenda.now_s
        self._step_s = self._table.step_s(len(self.running), prefill_tokens, len(self._adapters))
        if self._table.spread:
            noise = self._draw.gauss(0.0, self._table.spread) / math.sqrt(self._stretch)
            self._step_s *= max(0.1, 1.0 + noise)
        self._plan_end()

    def _plan_end(self) -> None:
        self._round += 1
        at_s = self._began_s + self._stretch * self._step_s
        self._agenda.at(max(at_s, self._agenda.now_s), self._end, self._round)

    def _cut(self) -> None:
        """End the stretch with the step that is under way."""
        if self._stretch <= 1:
            return
        under_way = math.floor((self._agenda.now_s - self._began_s) / self._step_s) + 1
        if under_way < self._stretch:
            self._stretch = max(1, under_way)
            self._plan_end()

    def _end(self, round_: int) -> None:
        if round_ != self._round or not self.alive:
            return
        if self._agenda.now_s < self._held_until_s:
            self._agenda.at(self._held_until_s, self._end, round_)
            return
        self._produced += self._decoding * self._stretch
        self.row_s += len(self.running) * (self._agenda.now_s - self._began_s)
        self._decoding = 0
        self._steps += self._stretch
        self._stretch = -1
        first, ended = self._advance(), []
        self._produced += len(first)
        while self._ends and self._ends[0][0] <= self._steps:
            _, _, turn, sequence = heapq.heappop(self._ends)
            if sequence.turn == turn and sequence in self.running:
                sequence.produced = sequence.output_tokens
                self._release(sequence)
                ended.append(sequence)
        for done in self._probing:
            done()
        self._on_step(first, ended)
        self._begin()

    def _advance(self) -> list[Sequence]:
        """What the step computed of prompts; returns those whose next token came out of it."""
        sampled = []
        for sequence, stop in self._pieces:
            if sequence not in self.running:
                continue
            sequence.cached, sequence.served_step = stop, self._steps
            if stop == sequence.known:
                self._prefilling.remove(sequence)
                sequence.produced += 1
                sequence.since_step = self._steps
                last = self._steps + sequence.output_tokens - sequence.produced
                heapq.heappush(self._ends, (last, sequence.arrival, sequence.turn, sequence))
                sampled.append(sequence)
        self._pieces = []
        return sampled

    def _chunk(self) -> None:
        """Choose the pieces of prompts for this step."""
        left = self.shape.chunk_tokens
        for sequence in sorted(self._prefilling, key=_served) if len(self._prefilling) > 1 else self._prefilling:
            if sequence.known - sequence.cached == 1:
                self._pieces.append((sequence, sequence.known))
                continue
            end = sequence.cached + left
            stop = sequence.known if end >= sequence.known else end - end % BLOCK_TOKENS
            if stop > sequence.cached:
                self._pieces.append((sequence, stop))
                left -= stop - sequence.cached

    def _prompt_tokens(self) -> int:
        """That take time: a single one is like a row that decodes."""
        sizes = [stop - sequence.cached for sequence, stop in self._pieces]
        return sum(size for size in sizes if size > 1)

    def _until_an_end(self) -> int:
        while self._ends:
            last, _, turn, sequence = self._ends[0]
            if sequence.turn == turn and sequence in self.running:
                return max(1, last - self._steps)
            heapq.heappop(self._ends)
        return 1

    # -- rows ------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.shape.max_rows:
            sequence = self.waiting[0]
            if not self._cache.has_room(sequence, self.running, self.produced):
                return
            self.waiting.popleft()
            self.running[sequence] = None
            self._prefilling.append(sequence)
            self._adapters[sequence.adapter] += 1
            sequence.turn += 1
            sequence.cached = self._cache.enter(sequence)

    def _release(self, sequence: Sequence, *, returns: bool = False) -> None:
        del self.running[sequence]
        if sequence.since_step < 0:
            self._prefilling.remove(sequence)
        self._adapters[sequence.adapter] -= 1
        if not self._adapters[sequence.adapter]:
            del self._adapters[sequence.adapter]
        self._cache.leave(sequence, returns=returns)
        sequence.since_step = sequence.served_step = -1
        sequence.cached = 0

    def _within_cache(self) -> int:
        """Throw out the youngest until the step fits; returns how many steps alike do."""
        cache = self._cache
        cache.begin()
        for sequence, stop in [*self._next_tokens(), *self._pieces]:
            while sequence in self.running and not cache.covers(sequence, stop, self.running, self.produced):
                youngest = max(self.running, key=_arrival)
                youngest.produced = self.produced(youngest)
                self._release(youngest, returns=True)
                self.waiting.appendleft(youngest)
                self.preemptions += 1
        self._pieces = [piece for piece in self._pieces if piece[0] in self.running]
        return cache.steps_left(self.running, self.produced)

    def _next_tokens(self) -> list[tuple[Sequence, int]]:
        return [(each, each.prompt_tokens + self.produced(each)) for each in self.running if each.since_step >= 0]


_FOR_EVER = 1 << 40


def _served(sequence: Sequence) -> int:
    return sequence.served_step


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
