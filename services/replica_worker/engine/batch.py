"""Which tokens the next engine step computes: pure, and shared by every engine of ours.

A step takes one token of every sequence that is decoding, brief ones whole and, besides, at most
`prefill_chunk_tokens` of prompts, so that a long prompt never stalls running streams. Where a prompt is cut
depends on who else is in the batch: an engine's numbers must not depend on the cuts.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.replica_worker.engine.blocks import BLOCK_TOKENS


class Progress(msgspec.Struct, frozen=True):
    """How far one running sequence is. `known_tokens` are prompt plus produced, `cached_tokens` of them
    are in the KV cache; one missing means that it is decoding. `served_step` is the last step that
    computed any of its tokens (-1: none yet). A `brief` one has so few tokens that nobody waits for them."""

    row: int
    known_tokens: int
    cached_tokens: int
    served_step: int = -1
    brief: bool = False


class Piece(msgspec.Struct, frozen=True):
    """Tokens [start, stop) of the sequence in `row`. `last` says that its next token can be sampled."""

    row: int
    start: int
    stop: int
    last: bool


def next_batch(sequences: Iterable[Progress], prefill_chunk_tokens: int) -> tuple[Piece, ...]:
    """Decode rows and brief sequences first, in the order given, then prompts, longest-unserved first, until
    the step is full.

    All of the former are in the result; if anything is prefilling, at least one prompt goes on. Prompts take
    turns: none waits for more steps than there are others. A chunk ends where a block ends, unless the prompt
    does.
    """
    whole: list[Progress] = []
    prefilling: list[Progress] = []
    for sequence in sequences:
        missing = sequence.known_tokens - sequence.cached_tokens
        (whole if missing == 1 or sequence.brief else prefilling).append(sequence)
    pieces = [_piece(sequence, sequence.known_tokens) for sequence in whole]
    left = prefill_chunk_tokens
    for sequence in sorted(prefilling, key=lambda waiting: waiting.served_step):
        stop = _chunk_end(sequence, left)
        if stop > sequence.cached_tokens:
            pieces.append(_piece(sequence, stop))
            left -= stop - sequence.cached_tokens
    return tuple(pieces)


def _chunk_end(sequence: Progress, left: int) -> int:
    """As far as `left` tokens go; at a block's end if there is more, so that others can share the block."""
    end = sequence.cached_tokens + left
    return sequence.known_tokens if end >= sequence.known_tokens else end - end % BLOCK_TOKENS


def _piece(sequence: Progress, stop: int) -> Piece:
    return Piece(sequence.row, sequence.cached_tokens, stop, last=stop == sequence.known_tokens)
