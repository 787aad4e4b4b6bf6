"""Continuous batching: who has a row and blocks, who waits, when a sequence ends. The same for every engine
of ours.

Sequences get rows in the order of their arrival, and blocks as they grow; brief ones have rows of their own.
When no block is left the youngest gives up its row and its blocks, and waits again before everybody else; so
the oldest always goes on, and everything ends. Not thread-safe: one thread or task drives it, step by step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from services.replica_worker.engine.batch import Piece, next_batch
from services.replica_worker.engine.blocks import BLOCK_TOKENS
from services.replica_worker.engine.holdings import Holdings
from services.replica_worker.engine.port import EngineInfo, StepToken
from services.replica_worker.engine.sequence import BRIEF_TOKENS, WAITING, Sequence
from services.replica_worker.engine.shaping import Logprobs

BRIEF_ROWS = 2
"""Beyond `max_rows`: a replica loads one adapter after another, so that few probes are under way at a time."""
MOST_BRIEF_TOKENS = BRIEF_ROWS * BRIEF_TOKENS
"""What a step may compute beyond its decode rows and its chunk of prompts."""


class SchedulePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A step computes at most `prefill_chunk_tokens` of prompts, at least one block of them. The KV cache is
    `blocks` × BLOCK_TOKENS tokens; `prefix_cache` says whether sequences share them."""

    prefill_chunk_tokens: int
    blocks: int
    prefix_cache: bool = True


class Schedule:
    """Up to `max_rows` sequences run at once, by row, and beside them BRIEF_ROWS brief ones, from row `max_rows`
    on; the others wait in the order of their arrival.

    Every running sequence is older than every waiting one of its kind.
    """

    def __init__(self, info: EngineInfo, policy: SchedulePolicy) -> None:
        if policy.prefill_chunk_tokens < BLOCK_TOKENS:
            raise ValueError(f"prefill_chunk_tokens is {policy.prefill_chunk_tokens}, a block is {BLOCK_TOKENS}")
        self._info = info
        self._policy = policy
        self._free_rows = list(reversed(range(info.max_rows)))
        self._free_brief_rows = list(range(info.max_rows, info.max_rows + BRIEF_ROWS))
        self._holdings = Holdings(policy.blocks, policy.prefix_cache)
        self._arrivals = 0
        self.running: dict[int, Sequence] = {}
        self.waiting: deque[Sequence] = deque()
        self.waiting_brief: deque[Sequence] = deque()
        self.steps = 0
        self.preemptions = 0

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting or self.waiting_brief)

    @property
    def tokens_held(self) -> int:
        """Of the KV cache, in whole blocks that a running sequence uses; idle prefixes do not count."""
        return self._holdings.pool.in_use * BLOCK_TOKENS

    def submit(self, sequence: Sequence) -> None:
        self._arrivals += 1
        sequence.arrival = self._arrivals
        self._line_of(sequence).append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Free its row, or take it out of the queue; nothing happens if it has ended."""
        if sequence.row != WAITING:
            self.release(sequence)
        elif sequence in self._line_of(sequence):
            self._line_of(sequence).remove(sequence)

    def forget(self, digest: str) -> None:
        """No later request uses what was computed with this adapter."""
        self._holdings.forget(digest, self.running.values())

    def begin_step(self) -> tuple[Piece, ...]:
        """Give rows to those who wait and say what the next step computes; empty if nothing runs.

        The sequence of every piece has blocks for [0, stop).
        """
        self._admit()
        for sequence in self.running.values():
            self._holdings.reuse(sequence)
        progress = [sequence.progress() for sequence in self.running.values()]
        pieces = self._with_blocks(next_batch(progress, self._policy.prefill_chunk_tokens))
        self.steps += bool(pieces)
        return pieces

    def advance(self, pieces: Iterable[Piece]) -> list[Sequence]:
        """Note that the step computed these pieces; returns, in order, the sequences to sample now.

        A sequence that was aborted during the step is left out.
        """
        sampled = []
        for piece in pieces:
            sequence = self.running.get(piece.row)
            if sequence is None:
                continue
            sequence.advance(piece, self.steps)
            self._holdings.publish(sequence)
            if piece.last:
                sampled.append(sequence)
        return sampled

    def accept(self, sequence: Sequence, token_id: int, logprobs: Logprobs | None = None) -> StepToken:
        """Append the sampled token; releases the row if it was the last one."""
        position, first = sequence.next_position, not sequence.produced_tokens
        sequence.append(token_id)
        finish = self._finish_reason(sequence, token_id)
        if finish:
            self.release(sequence)
        found = sequence.found_tokens if first else 0
        id_ = sequence.request.request_id
        return StepToken(id_, token_id, position, finish, cached_tokens=found, logprobs=logprobs)

    def fail(self, sequence: Sequence, why: str) -> StepToken:
        """End a running sequence with an error and release its row. What it computed is not used again."""
        self._holdings.distrust(sequence, self.running.values())
        return self.break_off(sequence, why)

    def break_off(self, sequence: Sequence, why: str) -> StepToken:
        """End a running sequence with an error, for no fault of what was computed for it, and release its row."""
        self.release(sequence)
        return StepToken(sequence.request.request_id, -1, sequence.next_position, error=why)

    def release(self, sequence: Sequence) -> None:
        """Take row and blocks from a running sequence. Raises KeyError if it is not running."""
        del self.running[sequence.row]
        self._rows_for(sequence).append(sequence.row)
        sequence.row = WAITING
        self._holdings.give_up(sequence)

    def broken_invariants(self) -> list[str]:
        """What is wrong, derived anew; empty if nothing is. True between any two calls, not within one."""
        running = list(self.running.values())
        broken = self._holdings.broken_invariants(running)
        if sorted([*self._free_rows, *self._free_brief_rows, *self.running]) != [
            *range(self._info.max_rows + BRIEF_ROWS)
        ]:
            broken.append("free and running rows are not each row once")
        if any(row != sequence.row for row, sequence in self.running.items()):
            broken.append("a running sequence believes to be in another row")
        for line, brief in ((self.waiting, False), (self.waiting_brief, True)):
            if any(sequence.blocks or sequence.row != WAITING for sequence in line):
                broken.append("a waiting sequence holds a row or blocks")
            arrivals = sorted(sequence.arrival for sequence in running if sequence.brief == brief)
            arrivals += [sequence.arrival for sequence in line]
            if arrivals != sorted(arrivals):
                broken.append("a sequence waits behind a younger one")
        return broken

    def _admit(self) -> None:
        for line in (self.waiting_brief, self.waiting):
            while line and self._rows_for(line[0]) and self._has_room_for(line[0]):
                sequence = line.popleft()
                sequence.row = self._rows_for(sequence).pop()
                self.running[sequence.row] = sequence
                self._holdings.reuse(sequence)

    def _line_of(self, sequence: Sequence) -> deque[Sequence]:
        return self.waiting_brief if sequence.brief else self.waiting

    def _rows_for(self, sequence: Sequence) -> list[int]:
        return self._free_brief_rows if sequence.brief else self._free_rows

    def _has_room_for(self, sequence: Sequence) -> bool:
        """All its tokens so far must fit beside what the running ones have to get, and leave each of those that
        grow a block for it: otherwise it would soon be thrown out again. A lone sequence always fits."""
        running = self.running.values()
        promised = sum(self._holdings.missing(one) + (not one.probe_top) for one in running)
        return not running or self._holdings.would_leave(sequence) >= promised

    def _with_blocks(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Blocks for these pieces. Those who had to make room, maybe after they had got theirs, are left out."""
        planned = [(piece, self.running[piece.row]) for piece in pieces]
        for piece, sequence in planned:
            while sequence.row != WAITING and not self._holdings.cover(sequence, piece.stop):
                self._preempt(max(self.running.values(), key=lambda one: one.arrival))
        return tuple(piece for piece, sequence in planned if sequence.row != WAITING)

    def _preempt(self, sequence: Sequence) -> None:
        self.release(sequence)
        self._line_of(sequence).appendleft(sequence)
        self.preemptions += 1

    def _finish_reason(self, sequence: Sequence, token_id: int) -> str | None:
        if token_id in self._info.eos_token_ids and not sequence.request.ignore_eos:
            return "stop"
        full = len(sequence.token_ids) >= self._info.max_context_tokens
        return "length" if full or sequence.produced_tokens >= sequence.request.max_tokens else None
