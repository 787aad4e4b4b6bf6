"""What a sequence finds of others' work, what it never finds, and that a key which lacks something is noticed."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import msgspec
import pytest

from services.replica_worker.engine import sequence as sequence_module
from services.replica_worker.engine.blocks import BLOCK_TOKENS, PrefixKey, extend_keys
from services.replica_worker.engine.sequence import Sequence, probe_request
from tests.support.paper_engine import CHUNK_TOKENS, PaperEngine, alone, asking

OWNERS = [("", ""), ("one", ""), ("two", ""), ("one", "acme"), ("one", "umbrella"), ("", "acme")]
"""(digest, salt) of those who ask the same."""


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


def test_what_was_computed_for_a_sequence_that_is_broken_off_can_be_found() -> None:
    engine = PaperEngine(blocks=60)
    ending, beside = engine.submit(asking("ending", 96, 40)), engine.submit(asking("beside", 96, 40))
    while not engine.answers["beside"]:
        engine.step()
    engine.schedule.break_off(ending, "planted")
    assert engine.schedule.broken_invariants() == []
    engine.run()
    assert engine.answers["beside"] == alone(beside.request)
    engine.submit(asking("anew", 97, 1))
    engine.run()
    assert engine.found_tokens["anew"] == 96


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
