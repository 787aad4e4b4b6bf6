"""Rows: given in the order of arrival, given back at every kind of end."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.engine.port import EngineInfo
from services.replica_worker.engine.schedule import BRIEF_ROWS, Schedule, SchedulePolicy
from services.replica_worker.engine.sequence import BRIEF_TOKENS, WAITING, Sequence, probe_request
from tests.support.token_log import greedy

EOS = 2
INFO = EngineInfo(
    name="none",
    build="none",
    dtype="none",
    base_model_hash="b",
    slots=2,
    rank_limit=8,
    max_rows=2,
    max_context_tokens=32,
    vocabulary_size=100,
    eos_token_ids=(EOS,),
)


def sequence(name: str = "a", prompt: int = 4, **changes: object) -> Sequence:
    return Sequence(msgspec.structs.replace(greedy(name, [5] * prompt), **changes))


def step(schedule: Schedule, token_id: int = 7) -> list[tuple[str, str | None]]:
    sampled = schedule.advance(schedule.begin_step())
    return [(one.request.request_id, schedule.accept(one, token_id).finish) for one in sampled]


def test_rows_go_to_the_first_who_came() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=8))
    for name in "abcd":
        schedule.submit(sequence(name, max_tokens=2))
    assert [name for name, _ in step(schedule)] == ["a", "b"]
    assert step(schedule) == [("a", "length"), ("b", "length")]
    assert [name for name, _ in step(schedule)] == ["c", "d"]


def probe(prompt: int = BRIEF_TOKENS) -> Sequence:
    return Sequence(probe_request([5] * prompt, 0), probe_top=5)


def computed(schedule: Schedule) -> list[Sequence]:
    """Those that the next step brings to their end or to their next token; probes end."""
    sampled = schedule.advance(schedule.begin_step())
    for one in sampled:
        if one.probe_top:
            schedule.release(one)
        else:
            schedule.accept(one, 7)
    return sampled


def test_a_short_probe_waits_for_no_row_and_takes_none() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=16))
    rows = [sequence(name, max_tokens=9) for name in "abc"]
    probes = [probe() for _ in range(BRIEF_ROWS + 1)]
    for one in (*rows, *probes):
        schedule.submit(one)
    assert set(computed(schedule)) == {*rows[:2], *probes[:-1]}
    assert schedule.broken_invariants() == []
    assert set(computed(schedule)) == {*rows[:2], probes[-1]}
    assert schedule.broken_invariants() == []


def test_a_long_probe_waits_like_any_prompt() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=16))
    rows = [sequence(name, max_tokens=2) for name in "ab"]
    late = probe(BRIEF_TOKENS + 1)
    for one in (*rows, late):
        schedule.submit(one)
    assert [computed(schedule) for _ in range(3)] == [rows, rows, [late]]


def test_a_short_probe_that_leaves_frees_its_place() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=16))
    probes = [probe() for _ in range(BRIEF_ROWS + 2)]
    for one in probes:
        schedule.submit(one)
    schedule.begin_step()
    for one in (probes[0], probes[-1]):
        schedule.abort(one)
    assert computed(schedule) == probes[1:3]
    assert not schedule.busy
    assert schedule.broken_invariants() == []


def test_a_short_probe_comes_before_prompts_that_wait_and_after_blocks_that_are_taken() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=32, blocks=2))
    long, late = sequence("long", prompt=30, max_tokens=2), sequence("late", max_tokens=1)
    early, asked = probe(), probe()
    for one in (long, early):
        schedule.submit(one)
    assert [computed(schedule) for _ in range(2)] == [[early], [long]], "all the blocks are too few for both"
    for one in (late, asked):
        schedule.submit(one)
    assert [set(computed(schedule)) for _ in range(2)] == [{long}, {late, asked}]
    assert not schedule.busy
    assert schedule.broken_invariants() == []


def test_an_eos_token_ends_it_unless_it_is_to_be_ignored() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=8))
    schedule.submit(sequence("heeds", ignore_eos=False))
    schedule.submit(sequence("ignores", ignore_eos=True))
    assert step(schedule, EOS) == [("heeds", "stop"), ("ignores", None)]


def test_the_end_of_the_context_ends_it() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=64, blocks=8))
    schedule.submit(sequence(prompt=30, max_tokens=99))
    assert step(schedule) == [("a", None)]
    assert step(schedule) == [("a", "length")]


def test_a_sequence_aborted_during_a_step_gets_no_token() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=8))
    stays, leaves = sequence("stays"), sequence("leaves")
    schedule.submit(stays)
    schedule.submit(leaves)
    pieces = schedule.begin_step()
    schedule.abort(leaves)
    assert schedule.advance(pieces) == [stays]


def test_positions_of_a_continuation_go_on() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=8))
    one = sequence(first_position=11)
    schedule.submit(one)
    (sampled,) = schedule.advance(schedule.begin_step())
    assert schedule.accept(sampled, 7).position == 11
    assert one.next_position == 12


def test_aborting_twice_or_after_the_end_is_harmless() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=8))
    one = sequence(max_tokens=1)
    schedule.submit(one)
    step(schedule)
    schedule.abort(one)
    schedule.abort(one)
    assert not schedule.busy


@given(st.lists(st.tuples(st.sampled_from(["submit", "step", "abort", "fail"]), st.integers(0, 9)), max_size=60))
def test_rows_are_never_lost_nor_given_twice(events: list[tuple[str, int]]) -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=8))
    known: list[Sequence] = []
    for event, number in events:
        if event == "submit":
            known.append(sequence(f"r{len(known)}", prompt=1 + number, max_tokens=1 + number % 3))
            schedule.submit(known[-1])
        elif event == "step":
            step(schedule)
        elif event == "abort" and known:
            schedule.abort(known[number % len(known)])
        elif event == "fail" and schedule.running:
            schedule.fail(next(iter(schedule.running.values())), "planted")
        held = [one.row for one in known if one.row != WAITING]
        assert sorted(held) == sorted(schedule.running)
        assert sorted([*held, *schedule._free_rows]) == list(range(INFO.max_rows))
    while schedule.busy:
        step(schedule)
    assert sorted(schedule._free_rows) == list(range(INFO.max_rows))


def test_a_failed_sequence_says_why_and_where() -> None:
    schedule = Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=16, blocks=8))
    one = sequence(first_position=3)
    schedule.submit(one)
    schedule.begin_step()
    token = schedule.fail(one, "planted")
    assert (token.token_id, token.position, token.error) == (-1, 3, "planted")
    with pytest.raises(KeyError):
        schedule.release(one)
