"""Which tokens the next engine step computes: pure, and shared by every engine of ours.

A step takes one token of every sequence that is decoding and, besides, at most `prefill_chunk_tokens` of
prompts, so that a long prompt never stalls running streams. Chunks of one prompt always end at multiples
of `prefill_chunk_tokens` of *its own* length and are taken whole or not at all: what a prompt's tokens are
computed together with never depends on who else is in the batch, which is half of batch invariance.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """How far one running sequence is. `known_tokens` are prompt plus produced, `cached_tokens` of them
    are in the KV cache; one missing means that it is decoding. `served_step` is the last step that
    computed any of its tokens (-1: none yet)."""

    row: int
    known_tokens: int
    cached_tokens: int
    served_step: int = -1


class Piece(msgspec.Struct, frozen=True):
    """Tokens [start, stop) of the sequence in `row`. `last` says that its next token can be sampled."""

    row: int
    start: int
    stop: int
    last: bool


def next_batch(sequences: Iterable[Progress], prefill_chunk_tokens: int) -> tuple[Piece, ...]:
    """Decode rows first, in the order given, then whole prompt chunks, longest-unserved prompt first.

    Every decoding sequence is in the result; if anything is prefilling, at least one chunk is. Prompts
    take turns: none waits for more chunks of others than there are others.
    """
    decoding: list[Progress] = []
    prefilling: list[Progress] = []
    for sequence in sequences:
        missing = sequence.known_tokens - sequence.cached_tokens
        (decoding if missing == 1 else prefilling).append(sequence)
    pieces = [_piece(sequence, sequence.known_tokens) for sequence in decoding]
    left = prefill_chunk_tokens
    for sequence in sorted(prefilling, key=lambda waiting: waiting.served_step):
        piece = _piece(sequence, _chunk_end(sequence, prefill_chunk_tokens))
        if piece.stop - piece.start <= left:
            pieces.append(piece)
            left -= piece.stop - piece.start
    return tuple(pieces)


def _chunk_end(sequence: Progress, chunk: int) -> int:
    return min(sequence.known_tokens, (sequence.cached_tokens // chunk + 1) * chunk)


def _piece(sequence: Progress, stop: int) -> Piece:
    return Piece(sequence.row, sequence.cached_tokens, stop, last=stop == sequence.known_tokens)
