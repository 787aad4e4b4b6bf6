"""Steps that begin at moments which are known beforehand: those of several replicas in one process would otherwise
fall into step with each other, and what comes at once from all of them is nobody's traffic."""

from __future__ import annotations

import asyncio
import time

from services.replica_worker.engine.port import Probe, StepToken
from services.replica_worker.engine.sequence import Sequence
from services.replica_worker.engine.timed.engine import TimedEngine
from services.replica_worker.engine.timed.policy import TimedPolicy

_FIRST_LETTER = 67
_LETTERS = 26
"""By the ids of a byte-level tokenizer without special tokens but three."""


def until_step_s(now_s: float, step_s: float, offset: float) -> float:
    """How long until a moment that is a whole number of steps, and a share of one, after the clock's start: the next
    one, unless it is nearly there. A loop's timers ring up to a millisecond early, and that is no step."""
    if not step_s:
        return 0.0
    left_s = step_s - (now_s - offset * step_s) % step_s
    return left_s if left_s > step_s / 2 else left_s + step_s


class QuickEngine(TimedEngine):
    """A timed engine whose tokens are the alphabet: to draw them from a hash of the whole prompt costs more than all
    else that a worker does for a token."""

    def _outcome(self, sequence: Sequence) -> StepToken | Probe:
        if sequence.probe_top:
            return super()._outcome(sequence)
        return self._schedule.accept(sequence, _FIRST_LETTER + sequence.next_position % _LETTERS)


def step_begins_s(now_s: float, ended_s: float, step_s: float) -> float:
    """When the step began that is entered now: at the end of the last one, unless nothing was to be done since."""
    return ended_s if 0 <= now_s - ended_s < step_s else now_s


class OverlappingEngine(QuickEngine):
    """What the worker does for the tokens of a step takes place during the next one, as beside a GPU: many replicas on
    one processor would otherwise have longer steps than their table says."""

    _ended_s = 0.0

    async def _step(self) -> None:
        pieces = self._schedule.begin_step()
        prompt_tokens = sum(piece.stop - piece.start for piece in pieces if piece.stop - piece.start > 1)
        takes_s = self._policy.step_s + prompt_tokens / self._policy.prefill_tokens_per_s
        now_s = time.monotonic()
        self._ended_s = step_begins_s(now_s, self._ended_s, self._policy.step_s) + takes_s
        await asyncio.sleep(max(0.0, self._ended_s - now_s))
        self._desk.deliver([(sequence, self._outcome(sequence)) for sequence in self._schedule.advance(pieces)])


class SteppedEngine(QuickEngine):
    """Its steps end at the moments of a grid, this share of a step after everybody else's."""

    def __init__(self, policy: TimedPolicy, offset: float) -> None:
        super().__init__(policy)
        self._step_s, self._offset = policy.step_s, offset

    async def _step(self) -> None:
        pieces = self._schedule.begin_step()
        await asyncio.sleep(until_step_s(time.monotonic(), self._step_s, self._offset))
        self._desk.deliver([(sequence, self._outcome(sequence)) for sequence in self._schedule.advance(pieces)])
