"""A replica's engine: continuous batching with chunked prefill, in steps that are skipped while nothing changes.

It decides what `services/replica_worker/engine/schedule.py` and `batch.py` decide, without tokens: rows in the order of
arrival, decode rows first, then prompts by turns within the chunk, the youngest thrown out when no block of the KV
cache is left. Between two changes all steps are alike, so many are taken at once; a change takes effect when the step
during which it comes is over, as in the engine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from loadtest.twin.agenda import Agenda
from loadtest.twin.crowd import Crowd
from loadtest.twin.endings import Endings
from loadtest.twin.learnt import Learnt
from loadtest.twin.pace import Pace
from loadtest.twin.probes import Probes
from loadtest.twin.rows import Rows
from loadtest.twin.sequence import BatchShape, Sequence
from loadtest.twin.timing import MeasuredTable, StepTable

OnStep = Callable[[list[Sequence], list[Sequence]], None]
"""Those that got the first token since they were submitted, and those that have ended."""


class Batch:
    def __init__(
        self, shape: BatchShape, steps: StepTable | MeasuredTable, agenda: Agenda, on_step: OnStep, draw: random.Random
    ) -> None:
        self.shape = shape
        self.rows = Rows(shape, self.produced)
        self.learnt = Learnt()
        self.alive = True
        self.crowd: Crowd | None = None
        """Who shares its processors, where that matters."""
        self._table = steps
        self._agenda = agenda
        self._on_step = on_step
        self._endings = Endings(self.rows.running)
        self._probes = Probes()
        self._arrivals = 0
        self._steps = 0
        """Taken before the present stretch."""
        self._stretch = 0
        """How many steps alike are under way; 0: the engine stands still."""
        self._began_s = 0.0
        self._step_s = 0.0
        self._pace = Pace(steps.spread, draw)
        self._round = 0
        self._one_by_one = False
        self._held_until_s = 0.0
        self._produced = 0
        """Tokens of the steps before the present stretch, and of those that have left during it."""
        self._alone = False
        """Whether the present step computes of prompts, and is therefore like no other."""
        self._decoding = 0
        """How many produce a token in each step of the present stretch."""

    # -- what is asked of it ---------------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        self._arrivals += 1
        sequence.arrival = self._arrivals
        self.rows.waiting.append(sequence)
        if not self._stretch:
            self._begin_soon()
        elif len(self.rows.running) < self.shape.max_rows:
            self._cut()

    def withdraw(self, sequence: Sequence) -> None:
        """Take it out: it has ended, or it is paused. The step under way goes on without it."""
        if sequence in self.rows.running:
            if sequence.since_step >= 0:
                self._produced += self.steps - self._steps
                self._decoding -= 1
            sequence.produced = self.produced(sequence)
            self.rows.release(sequence, returns=True)
        elif sequence in self.rows.waiting:
            self.rows.waiting.remove(sequence)
        self._cut()  # who stood behind it may fit

    def probe(self, done: Callable[[], None]) -> None:
        """A few tokens in the next step, beside whatever runs."""
        self._probes.waiting.append(done)
        if not self._stretch:
            self._begin_soon()
        self._cut()

    def step_by_step(self, wanted: bool) -> None:
        """Whether `on_step` is to be called after every step, and not only after those that change something."""
        if wanted:
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
    def computes(self) -> bool:
        """Whether a step is under way."""
        return self._stretch != 0

    @property
    def steps(self) -> int:
        """That are over."""
        if self._stretch <= 1:
            return self._steps
        over = math.floor((self._agenda.now_s - self._began_s) / self._step_s)
        return self._steps + min(max(over, 0), self._stretch - 1)

    @property
    def tokens(self) -> int:
        """Produced by all who were ever here."""
        return self._produced + self._decoding * (self.steps - self._steps)

    # -- steps -----------------------------------------------------------------------------------------

    def _begin_soon(self) -> None:
        """Once all that happens at this moment has happened."""
        self._stretch = -1
        self._pace.forget()
        self._agenda.soon(self._begin)

    def _begin(self) -> None:
        rows = self.rows
        rows.admit()
        probes = self._probes
        if not rows.running and not probes.waiting:
            self._stretch = 0
            return
        longest, probe_tokens = rows.plan(), probes.begin()
        prefill_tokens = probe_tokens + (rows.prompt_tokens() if rows.pieces else 0)
        self._decoding = rows.decoding
        self._alone = bool(rows.pieces or probe_tokens)
        self._stretch = 1 if self._alone or self._one_by_one else min(longest, self._endings.after(self._steps))
        self._began_s = self._agenda.now_s
        self._step_s = self._table.step_s(len(rows.running), prefill_tokens, rows.adapters)
        if rows.pieces:
            if self._table.pair_s:
                self._step_s += self._table.pair_s * rows.prompt_pairs()
            if self.crowd is not None:
                self._step_s *= self.crowd.stretch(self)
        if self._table.spread:
            self._step_s *= self._pace.share(self._steps)
            self._stretch = min(self._stretch, self._pace.steps_left(self._steps))
        self._plan_end()

    def _plan_end(self) -> None:
        self._round += 1
        over_s = self._began_s + self._stretch * self._step_s
        self._agenda.at(max(over_s, self._agenda.now_s), self._end, self._round)

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
        prompts = bool(self.rows.pieces)
        self.learnt.look(self._stretch, self._decoding, self._step_s, plain=not self._alone, prompts=prompts)
        self._decoding = 0
        self._steps += self._stretch
        self._stretch = -1
        first, ended = self.rows.advance(self._steps), []
        for sequence in first:
            self._endings.plan(sequence, self._steps + sequence.output_tokens - sequence.produced)
        self._produced += len(first)
        while (over := self._endings.due(self._steps)) is not None:
            over.produced = over.output_tokens
            self.rows.release(over)
            ended.append(over)
        self._probes.end()
        self._on_step(first, ended)
        self._begin()
