"""A stream whose replica is lost or gives it up goes on elsewhere from what its client has."""

from __future__ import annotations

import pytest

from services.gateway.core import streams
from services.gateway.core.question import NoChoice
from services.gateway.core.stream import Ask, Deliver, Open, Wait
from services.gateway.core.transcript import Transcript
from tests.unit.gateway.life import POLICY, Life, failure, moved, running

NOBODY_YET = NoChoice(reason="Nobody is ready.", may_change=True)


def test_a_stream_that_loses_its_replica_goes_on_at_the_position_it_had() -> None:
    life = running("Good", " day")
    assert moved(life.lose()) == ("lost", True)
    assert life.begin("r1", 2) == (), "the response has long begun"
    assert life.chunk(2, "!", attempt=2) == (Deliver(text="!", token_ids=(2,), first=False),)
    last = life.finish(3, attempt=2)[0]
    assert isinstance(last, Deliver)
    assert last.finish is not None


def test_what_another_replica_repeats_is_not_said_twice_and_what_it_leaves_out_is_noticed() -> None:
    life = running("Good", " day")
    life.lose()
    life.begin("r1", 2)
    assert life.chunk(1, " day", attempt=2) == ()
    assert moved(life.chunk(3, "!", attempt=2)) == ("given_up", True)


def test_lost_before_the_first_token_it_opens_with_the_one_that_answers() -> None:
    life = running()
    assert moved(life.lose()) == ("lost", True)
    [again] = life.begin("r1", 2)
    assert isinstance(again, Open)
    assert life.chunk(0, "Good", attempt=2) == (Deliver(text="Good", token_ids=(0,), first=True),)


@pytest.mark.parametrize("texts", [(), ("Good",)])
def test_a_request_that_two_replicas_died_on_is_not_passed_on(texts: tuple[str, ...]) -> None:
    life = running(*texts)
    life.lose()
    life.begin("r1", 2)
    why = failure(life.lose())
    assert (why.status, why.code, why.heals) == (500, "replica_lost", False)
    assert why.message.startswith("2 replicas were lost")


def test_nobody_asks_a_replica_that_died_on_it_and_everybody_else_may_be_asked_again() -> None:
    life = Life()
    life.choose("r0")
    life.refuse("overloaded")
    life.begin("r1", 2)
    life.chunk(0, "Good", attempt=2)
    assert life.stream.tried == ("r0", "r1")
    life.lose()
    assert life.stream.tried == ("r1",)


def test_a_replica_that_gives_it_up_did_not_die_of_it_and_may_be_asked_again() -> None:
    life = running("Good")
    for attempt in range(1, 6):  # each time it gets further
        assert moved(life.give_up()) == ("given_up", True)
        assert life.stream.tried == ()
        life.begin("r0", attempt + 1)
        assert life.chunk(attempt, " day", attempt=attempt + 1)
    assert life.stream.dead == ()


def test_a_replica_that_gives_it_up_before_it_got_any_further_is_not_asked_again() -> None:
    life = running("Good")
    life.give_up()
    life.begin("r0", 2)
    life.give_up()
    assert life.stream.tried == ("r0",)


@pytest.mark.parametrize(("reason", "dead"), [("error", ("r0",)), ("cancelled", ())])
def test_an_end_that_is_none_is_a_death_if_the_replica_failed(reason: str, dead: tuple[str, ...]) -> None:
    for texts in ((), ("Good",)):
        life = running(*texts)
        moved(life.finish(len(texts), reason))
        assert life.stream.dead == dead


def test_time_to_find_somebody_and_to_the_next_token_counts_from_the_break() -> None:
    life = running("Good")
    life.now_s = 200.0
    life.lose()
    life.now_s = 201.9
    assert life.take(streams.chosen(life.stream, NOBODY_YET, POLICY, life.now_s)) == (Wait(),)
    life.choose("r1")
    life.queue(2)
    assert moved(life.tick(232.0)) == ("accept_deadline", True)
    life.choose("r2")
    life.queue(3)
    assert life.tick(260.0) == ()
    assert failure(life.tick(260.1)).code == "no_token_in_time"


def test_time_to_find_somebody_ends() -> None:
    life = running("Good")
    life.now_s = 200.0
    life.lose()
    assert failure(life.take(streams.chosen(life.stream, NOBODY_YET, POLICY, 202.0))).code == "no_replica"


def test_who_finds_nobody_to_go_on_with_says_what_became_of_the_stream() -> None:
    life = running("Good")
    life.lose()
    assert failure(life.choose(None)).message == "Nobody is there: Replica r restarted."


def test_attempts_count_anew_after_a_break() -> None:
    life = Life()
    life.choose("r0")
    life.refuse()
    life.choose("r1")
    life.refuse(attempt=2)
    life.begin("r2", 3)
    life.chunk(0, "Good", attempt=3)
    life.lose()
    life.choose("r0")
    assert moved(life.refuse(attempt=4)) == ("overloaded", False)
    [asked] = life.choose("r1")
    assert isinstance(asked, Ask)
    assert asked.attempt == 4, "what is asked is told how many were before"


def test_tokens_whose_acceptance_was_lost_on_the_way_are_not_waited_with_for_long() -> None:
    life = Life()
    life.choose("r0")
    life.queue()
    life.now_s = 10.0
    life.chunk(0, "Good")
    assert life.tick(11.0) == ()
    assert moved(life.tick(11.1)) == ("unaccepted", True)


def test_a_transcript_counts_characters_and_keeps_ids_small() -> None:
    transcript = Transcript()
    for text in ("Zoë", "", "👩‍🚀"):
        transcript.add((151_935,), text)
    assert transcript.token_ids == (151_935,) * 3
    assert transcript.text_chars == len("Zoë👩‍🚀")


def test_a_replica_that_restarts_before_it_said_a_word_may_be_asked_again() -> None:
    life = Life()
    life.choose("r0")
    assert moved(life.lose()) == ("lost", True)
    assert (life.stream.tried, life.stream.dead) == ((), ())


def test_each_time_that_nobody_is_there_has_its_own_patience_and_all_of_them_together_end() -> None:
    life = Life()
    for attempt in range(1, 31):
        life.choose("r0")
        life.unanswered(attempt)
        life.now_s += 1.9
        assert life.take(streams.chosen(life.stream, NOBODY_YET, POLICY, life.now_s)) == (Wait(),)
        life.now_s += 0.05
    life.choose("r0")
    life.unanswered(31)
    life.now_s = 60.0
    assert failure(life.take(streams.chosen(life.stream, NOBODY_YET, POLICY, life.now_s))).code == "no_replica"
