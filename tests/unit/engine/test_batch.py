"""What the next step computes: nobody stalls, and no prompt's chunks depend on its company."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.engine.batch import Piece, Progress, next_batch

CHUNK = 16


def prompt_chunks(lengths: list[int], decoding: int = 0) -> dict[int, list[tuple[int, int]]]:
    """Run prompts of these lengths to their end beside `decoding` endless streams; the chunks of each."""
    cached = dict.fromkeys(range(len(lengths)), 0)
    served = dict.fromkeys(range(len(lengths)), -1)
    chunks: dict[int, list[tuple[int, int]]] = {row: [] for row in cached}
    streams = [Progress(1000 + i, 50, 49) for i in range(decoding)]
    for step in range(1, 1000):
        left = [Progress(row, lengths[row], cached[row], served[row]) for row in cached if cached[row] < lengths[row]]
        if not left:
            return chunks
        for piece in next_batch([*streams, *left], CHUNK)[decoding:]:
            chunks[piece.row].append((piece.start, piece.stop))
            cached[piece.row], served[piece.row] = piece.stop, step
    raise AssertionError("a prompt never ended")


def test_every_decoding_sequence_gets_its_token() -> None:
    pieces = next_batch([Progress(3, 10, 9), Progress(1, 25, 24), Progress(2, 100, 0)], CHUNK)
    assert pieces == (Piece(3, 9, 10, True), Piece(1, 24, 25, True), Piece(2, 0, 16, False))


def test_short_prompts_share_a_step() -> None:
    pieces = next_batch([Progress(0, 6, 0), Progress(1, 5, 0), Progress(2, 6, 0), Progress(3, 5, 0)], CHUNK)
    assert [(piece.row, piece.last) for piece in pieces] == [(0, True), (1, True), (3, True)]


def test_prompts_take_turns() -> None:
    pieces = next_batch([Progress(0, 90, 32, served_step=8), Progress(1, 90, 16, served_step=7)], CHUNK)
    assert pieces == (Piece(1, 16, 32, False),)


def test_nothing_to_do_is_an_empty_step() -> None:
    assert next_batch([], CHUNK) == ()


@given(lengths=st.lists(st.integers(2, 100), min_size=1, max_size=8), decoding=st.integers(0, 4))
def test_a_prompts_chunks_are_its_own_whatever_the_company(lengths: list[int], decoding: int) -> None:
    together = prompt_chunks(lengths, decoding)
    assert [together[row] for row in range(len(lengths))] == [prompt_chunks([length])[0] for length in lengths]


@given(
    st.lists(
        st.tuples(st.integers(1, 200), st.integers(0, 200), st.integers(-1, 9)).filter(lambda one: one[1] < one[0]),
        max_size=12,
    )
)
def test_a_step_is_bounded_and_never_idle(states: list[tuple[int, int, int]]) -> None:
    sequences = [Progress(row, *state) for row, state in enumerate(states)]
    pieces = next_batch(sequences, CHUNK)
    decoding = {one.row for one in sequences if one.known_tokens - one.cached_tokens == 1}
    assert {piece.row for piece in pieces} >= decoding
    prompt_tokens = sum(piece.stop - piece.start for piece in pieces if piece.row not in decoding)
    assert prompt_tokens <= CHUNK
    assert bool(pieces) == bool(sequences)
    assert len({piece.row for piece in pieces}) == len(pieces)
