"""Whatever comes and goes: every sequence reads its own, nothing stays behind, and a fault in that is noticed."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.replica_worker.engine.port import EngineRequest
from services.replica_worker.engine.sequence import WAITING, Sequence
from tests.support.paper_engine import PaperEngine, alone, asking

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
"""(digest, salt) of those who ask."""


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
