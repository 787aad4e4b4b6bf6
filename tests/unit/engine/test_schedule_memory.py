"""A schedule and its KV cache: whatever comes and goes, every sequence reads its own, and everything ends."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.replica_worker.engine import sequence as sequence_module
from services.replica_worker.engine.blocks import BLOCK_TOKENS, PrefixKey, extend_keys
from services.replica_worker.engine.holdings import Holdings
from services.replica_worker.engine.port import EngineRequest
from services.replica_worker.engine.schedule import Schedule, SchedulePolicy
from services.replica_worker.engine.sequence import WAITING, Sequence, probe_request
from tests.support.paper_engine import CHUNK_TOKENS, INFO, PaperEngine, alone, asking

Event = tuple[str, int, int]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "step", "step", "step", "abort", "fail", "forget"]),
        st.integers(0, 60),
        st.integers(0, 11),
    ),
    max_size=60,
)
OWNERS = [("", ""), ("one", ""), ("two", ""), ("one", "acme"), ("one", "umbrella"), ("", "acme")]
"""(digest, salt) of those who ask; every question is asked by all of them."""


class Played:
    """An engine after events, with what it was asked."""

    def __init__(self, events: SequenceOf[Event], blocks: int) -> None:
        self.engine = PaperEngine(blocks)
        self.asked: dict[str, tuple[EngineRequest, str]] = {}
        self.stopped: set[str] = set()
        self._sequences: list[Sequence] = []
        for event in events:
            self._play(*event)
            assert self.engine.schedule.broken_invariants() == []

    def _play(self, event: str, number: int, other: int) -> None:
        schedule = self.engine.schedule
        if event == "submit":
            self._submit(number, other)
        elif event == "step":
            self.engine.step()
        elif event == "abort" and self._sequences:
            self._stop(self._sequences[number % len(self._sequences)])
        elif event == "fail" and schedule.running:
            failing = list(schedule.running.values())[number % len(schedule.running)]
            self.stopped.add(failing.request.request_id)
            schedule.fail(failing, "planted")
        elif event == "forget":
            schedule.forget(OWNERS[other % len(OWNERS)][0])

    def _submit(self, number: int, other: int) -> None:
        digest, salt = OWNERS[other % len(OWNERS)]
        name = f"r{len(self.asked)}"
        request = asking(name, length=1 + number, max_tokens=1 + (number * other) % 30, family=other % 2, salt=salt)
        self.asked[name] = (request, digest)
        self._sequences.append(self.engine.submit(request, digest))

    def _stop(self, sequence: Sequence) -> None:
        if sequence.request.request_id not in self.engine.ended:
            self.stopped.add(sequence.request.request_id)
        self.engine.schedule.abort(sequence)

    def wrong(self) -> list[str]:
        """Those that ended with another answer than they give alone."""
        return [
            name
            for name, (request, digest) in self.asked.items()
            if name not in self.stopped and self.engine.answers[name] != alone(request, digest)
        ]


@settings(max_examples=150, deadline=None)
@given(events=EVENTS, blocks=st.integers(6, 14))
def test_c23_whatever_comes_and_goes_every_answer_is_its_own_and_nothing_is_held_at_the_end(
    events: list[Event], blocks: int
) -> None:
    played = Played(events, blocks)
    played.engine.run()
    assert played.engine.faults == []
    assert played.wrong() == []
    assert played.engine.ended == played.asked.keys() - played.stopped
    assert played.engine.schedule.tokens_held == 0
    assert played.engine.schedule.broken_invariants() == []


def _without_digest(keys: list[PrefixKey], digest: str, salt: str, token_ids: SequenceOf[int]) -> None:
    extend_keys(keys, "", salt, token_ids)


def _without_salt(keys: list[PrefixKey], digest: str, salt: str, token_ids: SequenceOf[int]) -> None:
    extend_keys(keys, digest, "", token_ids)


def _without_what_is_before(keys: list[PrefixKey], digest: str, salt: str, token_ids: SequenceOf[int]) -> None:
    for start in range(len(keys) * BLOCK_TOKENS, len(token_ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        only: list[PrefixKey] = []
        extend_keys(only, digest, salt, token_ids[start : start + BLOCK_TOKENS])
        keys += only


def same_question_by_everybody() -> PaperEngine:
    engine = PaperEngine(blocks=60)
    for at, (digest, salt) in enumerate(OWNERS):
        engine.submit(asking(f"r{at}", 40, 3, salt=salt), digest)
        engine.run()
    return engine


@pytest.mark.parametrize(
    ("fault", "wrong_answers"), [(extend_keys, 0), (_without_digest, 3), (_without_salt, 0)], ids=["none", "c02", "c57"]
)
def test_a_key_that_lacks_digest_or_salt_is_noticed(
    monkeypatch: pytest.MonkeyPatch, fault: object, wrong_answers: int
) -> None:
    monkeypatch.setattr(sequence_module, "extend_keys", fault)
    engine = same_question_by_everybody()
    honest = [alone(asking("r", 40, 3), digest) for digest, _ in OWNERS]
    answers = [engine.answers[f"r{at}"] for at in range(len(OWNERS))]
    assert sum(mine != right for mine, right in zip(answers, honest, strict=True)) == wrong_answers
    assert bool(engine.faults) is (fault is not extend_keys)
    assert any(engine.found_tokens.values()) is (fault is not extend_keys)


def test_a_key_that_lacks_what_is_before_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asking("whole", 60, 3)
    tail = msgspec.structs.replace(whole, request_id="tail", prompt_token_ids=whole.prompt_token_ids[BLOCK_TOKENS:])
    right = alone(tail)
    monkeypatch.setattr(sequence_module, "extend_keys", _without_what_is_before)
    engine = PaperEngine(blocks=60)
    for request in (whole, tail):
        engine.submit(request)
        engine.run()
    assert engine.answers["tail"] != right


def test_a_load_far_beyond_the_cache_ends_with_the_answers_of_a_large_one() -> None:
    requests = [asking(f"r{at}", 5 + at * 13 % 60, 10 + at * 7 % 40, family=at % 3) for at in range(40)]
    engine = PaperEngine(blocks=7)
    for request in requests:
        engine.submit(request)
    engine.run()
    assert engine.schedule.preemptions > 10, "the cache was large enough, so this run proves nothing"
    assert engine.faults == []
    assert [engine.answers[request.request_id] for request in requests] == [alone(request) for request in requests]
    assert engine.schedule.tokens_held == 0


def test_no_progress_is_thrown_away_again_and_again() -> None:
    """Each preemption makes way for growth; admission leaves room for it, so there are few of them."""
    engine = PaperEngine(blocks=12, prefix_cache=False)
    for at in range(40):
        engine.submit(asking(f"r{at}", 20, 60, family=at % 5))
    engine.run()
    assert engine.schedule.preemptions <= 40
    assert engine.schedule.steps < 40 * 61


def test_the_youngest_gives_way_keeps_its_tokens_and_goes_on_first() -> None:
    engine = PaperEngine(blocks=6)
    old, young, late = [
        engine.submit(asking(name, 30, 60, family=at)) for at, name in enumerate(("old", "young", "late"))
    ]
    while not engine.schedule.preemptions:
        engine.step()
    produced = list(engine.answers["young"])
    assert (old.row == WAITING, young.row, young.blocks) == (False, WAITING, [])
    assert list(engine.schedule.waiting) == [young, late]
    assert young.token_ids[30:] == produced != []
    engine.run()
    assert engine.answers["young"][: len(produced)] == produced
    assert engine.answers["young"] == alone(young.request)


def thrown_out(engine: PaperEngine, sequence: Sequence) -> None:
    """As if there had been no block left."""
    engine.schedule.release(sequence)
    engine.schedule.waiting.appendleft(sequence)


def test_a_preempted_sequence_finds_its_own_work_and_does_not_call_it_cached() -> None:
    engine = PaperEngine(blocks=60)
    one = engine.submit(asking("one", 3 * CHUNK_TOKENS, 2))
    for _ in range(2):
        engine.step()
    assert one.cached_tokens == 2 * CHUNK_TOKENS
    thrown_out(engine, one)
    engine.step()
    assert one.cached_tokens == 3 * CHUNK_TOKENS
    assert engine.found_tokens == {"one": 0}


def test_what_a_preempted_sequence_computes_again_can_be_found_again() -> None:
    engine = PaperEngine(blocks=10)
    one = engine.submit(asking("one", 3 * CHUNK_TOKENS, 2))
    for _ in range(2):
        engine.step()
    thrown_out(engine, one)
    engine.schedule.forget("another adapter")
    assert engine.schedule._holdings.pool.take(10) is not None, "everything that could be found is gone"
    engine.schedule._holdings.pool.release(range(10))
    engine.run()
    engine.submit(asking("two", 3 * CHUNK_TOKENS + 1, 2))
    engine.run()
    assert engine.found_tokens["two"] == 3 * CHUNK_TOKENS


def test_a_step_that_was_never_computed_is_planned_again() -> None:
    engine = PaperEngine(blocks=60)
    one = engine.submit(asking("one", 90, 2))
    lost = engine.schedule.begin_step()
    holdings = engine.schedule._holdings
    others = holdings.pool.take(5) or []
    for block, key in zip(others, one.prefix_keys(), strict=True):
        holdings.pool.publish(block, key)
    assert engine.schedule.begin_step() == lost
    assert one.cached_tokens == 0


def test_a_prefix_that_is_found_is_not_counted_as_room_as_well() -> None:
    holdings = Holdings(blocks=5, prefix_cache=True)
    first, second = Sequence(asking("first", 64, 1)), Sequence(asking("second", 65, 1))
    holdings.cover(first, 64)
    first.cached_tokens = 64
    holdings.publish(first)
    assert holdings.would_leave(second) == 0
    holdings.give_up(first)
    assert holdings.would_leave(second) == 0
    assert holdings.would_leave(Sequence(asking("third", 65, 1, family=1))) == 0
    assert holdings.would_leave(Sequence(asking("fourth", 90, 1))) == -1


def test_one_prompt_for_many_sequences_is_computed_once() -> None:
    engine = PaperEngine(blocks=60)
    for at in range(4):
        engine.submit(msgspec.structs.replace(asking(f"r{at}", 100, 3), seed=at))
    engine.run()
    assert engine.faults == []
    assert len({tuple(answer) for answer in engine.answers.values()}) == 4
    assert sum(100 - found for found in engine.found_tokens.values()) <= 100 + 3 * BLOCK_TOKENS


def test_at_least_one_token_of_a_prompt_is_computed() -> None:
    engine = PaperEngine(blocks=60)
    for name, length in (("first", 64), ("same", 64), ("longer", 65), ("shorter", 63)):
        engine.submit(asking(name, length, 2))
        engine.run()
    assert engine.found_tokens == {"first": 0, "same": 48, "longer": 64, "shorter": 48}


def next_turn(engine: PaperEngine, name: str, digest: str = "") -> int:
    """Have the prompt of a sequence computed anew, and then ask on from its answer; how much of that is found."""
    former = asking(name, 96, 40)
    engine.submit(asking("anew", 97, 1), digest)
    engine.run()
    assert engine.found_tokens["anew"] == 0
    turn = (*former.prompt_token_ids, *engine.answers[name], 7)
    engine.submit(msgspec.structs.replace(former, request_id="turn", prompt_token_ids=turn), digest)
    engine.run()
    return engine.found_tokens["turn"]


def test_an_answer_is_found_by_the_next_turn_even_if_its_prompt_was_computed_twice() -> None:
    engine = PaperEngine(blocks=60)
    engine.submit(asking("one", 96, 40))
    engine.submit(asking("two", 96, 40))
    engine.run()
    turn = (*asking("one", 96, 40).prompt_token_ids, *engine.answers["two"], 7)
    engine.submit(msgspec.structs.replace(asking("turn", 1, 2), prompt_token_ids=turn))
    engine.run()
    assert engine.found_tokens["turn"] == 128


def test_what_made_a_sequence_fail_is_not_found_nor_what_others_compute_on_top_of_it() -> None:
    engine = PaperEngine(blocks=60)
    failing, beside = engine.submit(asking("failing", 96, 40)), engine.submit(asking("beside", 96, 40))
    while not engine.answers["beside"]:
        engine.step()
    assert set(failing.blocks) & set(beside.blocks)
    engine.schedule.fail(failing, "planted")
    assert engine.schedule.broken_invariants() == []
    engine.run()
    assert engine.answers["beside"] == alone(beside.request)
    assert next_turn(engine, "beside") == 96


def test_what_runs_while_its_adapter_is_forgotten_leaves_nothing() -> None:
    engine = PaperEngine(blocks=60)
    engine.submit(asking("running", 96, 40), "bad")
    while not engine.answers["running"]:
        engine.step()
    engine.schedule.forget("bad")
    engine.run()
    assert next_turn(engine, "running", "bad") == 96


def test_an_answer_is_found_by_the_next_turn_of_its_conversation() -> None:
    engine = PaperEngine(blocks=60)
    first = asking("first", 20, 30)
    engine.submit(first)
    engine.run()
    turn = (*first.prompt_token_ids, *engine.answers["first"], 7, 8, 9)
    second = msgspec.structs.replace(first, request_id="second", prompt_token_ids=turn)
    engine.submit(second)
    engine.run()
    assert engine.found_tokens["second"] == 48
    assert engine.answers["second"] == alone(second)


def test_without_a_prefix_cache_nothing_is_found() -> None:
    engine = PaperEngine(blocks=60, prefix_cache=False)
    for name in ("first", "again"):
        engine.submit(asking(name, 64, 2))
        engine.run()
    assert engine.found_tokens == {"first": 0, "again": 0}


def test_a_probe_neither_finds_nor_leaves_a_prefix() -> None:
    engine = PaperEngine(blocks=60)
    engine.submit(asking("first", 64, 2))
    engine.run()
    for prompt in (asking("", 64, 1).prompt_token_ids, asking("", 64, 1, family=1).prompt_token_ids):
        probe = Sequence(probe_request(prompt, -1), probe_top=5)
        engine.schedule.submit(probe)
        pieces = engine.schedule.begin_step()
        assert [(piece.start, piece.stop) for piece in pieces] == [(0, CHUNK_TOKENS)]
        engine.schedule.advance(pieces)
        engine.schedule.abort(probe)
    engine.submit(asking("after", 64, 2, family=1))
    engine.run()
    assert engine.found_tokens["after"] == 0


def test_a_lone_sequence_may_have_the_whole_cache() -> None:
    engine = PaperEngine(blocks=4)
    request = asking("a", 40, 24)
    engine.submit(request)
    engine.run()
    assert len(engine.answers["a"]) == 24
    assert engine.schedule.preemptions == 0


def test_nobody_overtakes_a_prompt_that_waits_for_room() -> None:
    engine = PaperEngine(blocks=8)
    engine.submit(asking("running", 60, 20))
    engine.submit(asking("long", 100, 2, family=1))
    engine.submit(asking("short", 5, 2, family=2))
    engine.step()
    assert len(engine.schedule.running) == 1
    engine.run()
    assert list(engine.found_tokens) == ["running", "long", "short"]


def test_the_chunk_of_a_step_is_at_least_a_block() -> None:
    with pytest.raises(ValueError, match="a block is 16"):
        Schedule(INFO, SchedulePolicy(prefill_chunk_tokens=15, blocks=8))


def _share_what_is_written(engine: PaperEngine, one: Sequence, other: Sequence) -> None:
    engine.schedule._holdings.pool.release(other.blocks)
    other.blocks = list(one.blocks)
    engine.schedule._holdings.pool.hold(other.blocks)


def _forget_to_give_up(engine: PaperEngine, one: Sequence, other: Sequence) -> None:
    del engine.schedule.running[one.row]
    one.row = WAITING


def _believe_in_more(engine: PaperEngine, one: Sequence, other: Sequence) -> None:
    one.cached_tokens = 1000


def _swap_rows(engine: PaperEngine, one: Sequence, other: Sequence) -> None:
    one.row, other.row = other.row, one.row


def _overtake(engine: PaperEngine, one: Sequence, other: Sequence) -> None:
    engine.schedule.release(one)
    engine.schedule.waiting.append(one)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (_share_what_is_written, "which others hold"),
        (_forget_to_give_up, "holders and has 0"),
        (_believe_in_more, "has 1000 tokens in"),
        (_swap_rows, "another row"),
        (_overtake, "behind a younger one"),
    ],
)
def test_the_invariants_notice_a_planted_fault(
    fault: Callable[[PaperEngine, Sequence, Sequence], None], sentence: str
) -> None:
    engine = PaperEngine(blocks=20)
    one, other = [engine.submit(asking(name, 20, 9, family=at)) for at, name in enumerate("ab")]
    engine.step()
    engine.step()
    assert engine.schedule.broken_invariants() == []
    fault(engine, one, other)
    assert any(sentence in broken for broken in engine.schedule.broken_invariants())
