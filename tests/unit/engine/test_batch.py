"""What the next step computes: no stream stalls, and no prompt waits for ever."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.engine.batch import Piece, Progress, next_batch
from services.replica_worker.engine.blocks import BLOCK_TOKENS

CHUNK = 64


def prompt_steps(lengths: list[int], decoding: int = 0) -> dict[int, list[tuple[int, Piece]]]:
    """Run prompts of these lengths to their end beside `decoding` endless streams; each one's pieces with the
    steps that computed them, from 1 on."""
    cached = dict.fromkeys(range(len(lengths)), 0)
    served = dict.fromkeys(range(len(lengths)), -1)
    taken: dict[int, list[tuple[int, Piece]]] = {row: [] for row in cached}
    streams = [Progress(1000 + i, 50, 49) for i in range(decoding)]
    for step in range(1, 1000):
        left = [Progress(row, lengths[row], cached[row], served[row]) for row in cached if cached[row] < lengths[row]]
        if not left:
            return taken
        for piece in next_batch([*streams, *left], CHUNK)[decoding:]:
            taken[piece.row].append((step, piece))
            cached[piece.row], served[piece.row] = piece.stop, step
    raise AssertionError("a prompt never ended")


def test_every_decoding_sequence_gets_its_token() -> None:
    pieces = next_batch([Progress(3, 10, 9), Progress(1, 25, 24), Progress(2, 100, 0)], CHUNK)
    assert pieces == (Piece(3, 9, 10, True), Piece(1, 24, 25, True), Piece(2, 0, 64, False))


def test_short_prompts_share_a_step_and_the_last_one_fills_it() -> None:
    pieces = next_batch([Progress(0, 20, 0), Progress(1, 10, 0), Progress(2, 60, 0), Progress(3, 5, 0)], CHUNK)
    assert pieces == (Piece(0, 0, 20, True), Piece(1, 0, 10, True), Piece(2, 0, 32, False))


def test_what_a_block_does_not_fit_goes_to_a_prompt_that_ends() -> None:
    pieces = next_batch([Progress(0, 54, 0), Progress(1, 90, 0), Progress(2, 9, 0)], CHUNK)
    assert pieces == (Piece(0, 0, 54, True), Piece(2, 0, 9, True))


def test_a_brief_sequence_goes_beside_a_full_chunk() -> None:
    pieces = next_batch([Progress(0, CHUNK, 0), Progress(1, 3, 0, brief=True)], CHUNK)
    assert pieces == (Piece(1, 0, 3, True), Piece(0, 0, CHUNK, True))


def test_prompts_take_turns() -> None:
    pieces = next_batch([Progress(0, 90, 16, served_step=8), Progress(1, 90, 16, served_step=7)], CHUNK)
    assert pieces == (Piece(1, 16, 80, False),)


def test_nothing_to_do_is_an_empty_step() -> None:
    assert next_batch([], CHUNK) == ()


LENGTHS = st.lists(st.integers(2, 400), min_size=1, max_size=8)


@given(lengths=LENGTHS, decoding=st.integers(0, 4))
def test_every_prompt_is_computed_once_in_whole_blocks(lengths: list[int], decoding: int) -> None:
    for row, pieces in prompt_steps(lengths, decoding).items():
        stops = [piece.stop for _, piece in pieces]
        assert [piece.start for _, piece in pieces] == [0, *stops[:-1]]
        assert stops[-1] == lengths[row]
        assert [piece.last for _, piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert not any(stop % BLOCK_TOKENS for stop in stops[:-1])


@given(LENGTHS)
def test_no_prompt_waits_longer_than_there_are_others(lengths: list[int]) -> None:
    for pieces in prompt_steps(lengths).values():
        steps = [0, *(step for step, _ in pieces)]
        assert max(after - before for before, after in pairwise(steps)) <= len(lengths)


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
