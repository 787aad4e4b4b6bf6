"""Frames in order, whatever the way does to them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core import frames
from services.gateway.core.frames import AskReplay, FrameOrder, Ordered
from shared.contracts import catalog
from shared.contracts.codec import decode, encode
from shared.messages.generation import Frame, Replayed, TokenChunk


def frame(number: int, incarnation: str = "one", *, empty: bool = False) -> Frame:
    chunk = TokenChunk(request_id="q", position=number, token_ids=(number,), text=str(number))
    made = Frame(replica_id="r0", incarnation=incarnation, number=number, chunks=() if empty else (chunk,))
    return decode(catalog.FRAME, encode(catalog.FRAME, made))


def ask(first: int, last: int, incarnation: str = "one") -> AskReplay:
    return AskReplay(replica_id="r0", incarnation=incarnation, first=first, last=last)


def replayed(*numbers: int, missing: bool = False) -> Replayed:
    return Replayed(frames=tuple(frame(number) for number in numbers), missing=missing)


def order_after(*numbers: int) -> FrameOrder:
    order = FrameOrder("r0")
    for number in numbers:
        order.on_frame(frame(number))
    return order


def numbers(ordered: Ordered) -> list[int]:
    return [delivered.number for delivered in ordered.deliver]


def test_in_order_each_is_delivered_at_once() -> None:
    order = FrameOrder("r0")
    assert order.on_frame(frame(1)) == Ordered(deliver=(frame(1),))
    assert order.on_frame(frame(2)) == Ordered(deliver=(frame(2),))


def test_a_frame_that_came_before_is_dropped() -> None:
    assert order_after(1, 2).on_frame(frame(2)) == Ordered()
    assert order_after(1, 2).on_frame(frame(1)) == Ordered()


def test_a_gap_is_asked_for_once_and_holds_up_what_is_behind() -> None:
    order = order_after(1)
    assert order.on_frame(frame(4)) == Ordered(ask=ask(2, 3))
    assert order.on_frame(frame(5)) == Ordered()
    assert numbers(order.on_replayed(ask(2, 3), replayed(2, 3))) == [2, 3, 4, 5]
    assert numbers(order.on_frame(frame(6))) == [6]


def test_a_lost_last_frame_is_noticed_by_the_next_empty_one() -> None:
    order = order_after(1)
    assert order.on_frame(frame(1, empty=True)) == Ordered()
    assert order.on_frame(frame(3, empty=True)) == Ordered(ask=ask(2, 3))
    assert order.on_frame(frame(3, empty=True)) == Ordered()
    assert numbers(order.on_replayed(ask(2, 3), replayed(2, 3))) == [2, 3]


def test_an_answer_may_hold_only_the_first_part() -> None:
    order = order_after(1)
    order.on_frame(frame(5))
    ordered = order.on_replayed(ask(2, 4), replayed(2, 3))
    assert (numbers(ordered), ordered.ask) == ([2, 3], ask(4, 4))
    assert numbers(order.on_replayed(ask(4, 4), replayed(4))) == [4, 5]


def test_a_part_of_a_lost_tail() -> None:
    order = order_after(1)
    order.on_frame(frame(4, empty=True))
    assert order.on_replayed(ask(2, 4), replayed(2)) == Ordered(deliver=(frame(2),), ask=ask(3, 4))


def test_what_the_replica_no_longer_has_is_said_and_the_order_goes_on_behind_it() -> None:
    for answer in (replayed(missing=True), replayed(), replayed(3)):
        order = order_after(1)
        order.on_frame(frame(3))
        assert "no longer has them" in order.on_replayed(ask(2, 2), answer).broken
        assert numbers(order.on_frame(frame(4))) == [4]


def test_a_question_that_failed_is_asked_again_a_few_times() -> None:
    order = order_after(1)
    assert order.on_frame(frame(3)).ask == ask(2, 2)
    for _ in range(frames.MOST_FAILURES - 1):
        assert order.on_replay_failed(ask(2, 2), "nobody answered") == Ordered()
        assert order.on_frame(frame(3, empty=True)).ask == ask(2, 2)
    assert order.on_replay_failed(ask(2, 2), "nobody answered").broken.endswith("nobody answered")


def test_an_answer_in_between_gives_questions_their_patience_back() -> None:
    order = order_after(1)
    order.on_frame(frame(4))
    order.on_replay_failed(ask(2, 3), "nobody answered")
    order.on_frame(frame(4, empty=True))
    assert order.on_replayed(ask(2, 3), replayed(2)).ask == ask(3, 3)
    for _ in range(frames.MOST_FAILURES - 1):
        assert order.on_replay_failed(ask(3, 3), "nobody answered").broken == ""
        order.on_frame(frame(4, empty=True))
    assert order.on_replay_failed(ask(3, 3), "nobody answered").broken
    assert order.on_replay_failed(ask(2, 2), "nobody answered") == Ordered()


def test_too_much_behind_a_gap_is_given_up() -> None:
    order = order_after(1)
    outcomes = [order.on_frame(frame(number)) for number in range(3, frames.MOST_HELD + 4)]
    assert [bool(ordered.broken) for ordered in outcomes[-2:]] == [False, True]


def test_a_new_incarnation_begins_again_and_answers_about_the_old_one_come_too_late() -> None:
    order = order_after(1)
    order.on_frame(frame(3))
    assert numbers(order.on_frame(frame(1, "two"))) == [1]
    assert order.on_replayed(ask(2, 2), replayed(2)) == Ordered()
    assert order.on_replay_failed(ask(2, 2), "x") == Ordered()


def test_what_a_process_still_says_that_another_has_replaced_changes_nothing() -> None:
    order = order_after(1, 2)
    order.on_frame(frame(1, "two"))
    assert order.on_frame(frame(3)) == Ordered()
    assert order.on_frame(frame(9)) == Ordered()
    assert numbers(order.on_frame(frame(2, "two"))) == [2]


@given(st.lists(st.sampled_from(["arrives", "lost", "twice", "beat"]), max_size=30), st.integers(1, 4), st.integers())
def test_every_frame_once_and_in_order_through_any_loss(fates: list[str], part: int, seed: int) -> None:
    """The replica keeps all of them; its answers hold at most `part` frames and come whenever they like."""
    draw, order, delivered, questions = random.Random(seed), FrameOrder("r0"), [], []

    def take(ordered: Ordered) -> None:
        assert not ordered.broken
        delivered.extend(numbers(ordered))
        if ordered.ask is not None:
            questions.append(ordered.ask)

    def answer() -> None:
        question = questions.pop(draw.randrange(len(questions)))
        take(order.on_replayed(question, replayed(*range(question.first, question.last + 1)[:part])))

    for number, fate in enumerate(fates, start=1):
        for _ in range({"lost": 0, "twice": 2}.get(fate, 1)):
            take(order.on_frame(frame(number, empty=fate == "beat")))
        if questions and draw.random() < 0.5:
            answer()
    take(order.on_frame(frame(len(fates), empty=True)))
    while questions:
        answer()
    assert delivered == list(range(1, len(fates) + 1))


def test_a_first_token_comes_before_the_others_of_its_frame_and_each_stream_in_order() -> None:
    said = [("old", 7), ("new", 0), ("old", 8), ("young", 2), ("new", 1)]
    chunks = [TokenChunk(request_id=name, position=at, token_ids=(at,), text="") for name, at in said]
    ordered = [(chunk.request_id, chunk.position) for chunk in frames.youngest_first(chunks)]
    assert ordered == [("new", 0), ("new", 1), ("young", 2), ("old", 7), ("old", 8)]
