"""A cache too small for the load: who gets room, who gives way, and that everything ends as if there were plenty."""

from __future__ import annotations

import pytest

from services.replica_worker.engine.holdings import Holdings
from services.replica_worker.engine.schedule import Schedule, SchedulePolicy
from services.replica_worker.engine.sequence import WAITING, Sequence
from tests.support.paper_engine import CHUNK_TOKENS, INFO, PaperEngine, alone, asking


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
