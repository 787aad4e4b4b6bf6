"""The life of one request: who is asked when, what the client gets, and how it ends."""

from __future__ import annotations

from services.gateway.core import endings, refusal, streams
from services.gateway.core.routing import NoChoice
from services.gateway.core.stream import Abandon, Ask, Deliver, Fail, Open, Phase, Wait
from shared.messages.generation import Finish
from tests.unit.gateway.life import POLICY, USAGE, Life, failure, moved, running


def test_a_request_from_beginning_to_end() -> None:
    life = Life()
    [asked] = life.choose("r0")
    assert asked == Ask(replica_id="r0", pool_id="p", bus_id="q-1", attempt=0, reason="first")
    assert life.queue() == ()
    [opened] = life.accept()
    assert isinstance(opened, Open)
    assert life.chunk(0, "Good") == (Deliver(text="Good", token_ids=(0,), first=True),)
    assert life.chunk(1, " day") == (Deliver(text=" day", token_ids=(1,), first=False),)
    last, abandoned = life.finish(2)
    assert last == Deliver(text="", token_ids=(), first=False, finish=Finish(reason="stop", usage=USAGE))
    assert isinstance(abandoned, Abandon)
    assert not abandoned.tell
    assert life.stream.phase is Phase.DONE


def test_an_answer_without_any_token_still_has_a_first_chunk() -> None:
    life = running()
    last = life.finish(0)[0]
    assert isinstance(last, Deliver)
    assert last.first


def test_chunks_that_overtake_accepted_follow_it() -> None:
    life = Life()
    life.choose("r0")
    assert life.chunk(0, "Good") == ()
    assert life.finish(1) == ()
    assert [type(action) for action in life.accept()] == [Open, Deliver, Deliver, Abandon]


def test_accepted_without_queued_is_a_sign_of_life_too() -> None:
    life = Life()
    life.choose("r0")
    life.accept()
    life.queue()
    assert life.stream.phase is Phase.ACCEPTED


def test_nobody_there_moves_at_once_without_a_cancel() -> None:
    life = Life()
    life.choose("r0")
    assert moved(life.unanswered()) == ("no_responders", False)
    [asked] = life.choose("r1")
    assert isinstance(asked, Ask)
    assert (asked.bus_id, asked.attempt) == ("q-2", 1)
    assert life.stream.tried == ("r1",), "whoever had nothing of it may be asked once it is there"


def test_a_late_word_about_the_first_attempt_changes_nothing() -> None:
    life = Life()
    life.choose("r0")
    life.tick(1.1)
    life.choose("r1")
    before = life.stream
    assert life.unanswered() == ()
    for heard in (life.queue, life.accept, life.refuse):
        assert heard(attempt=1) == ()
    assert life.chunk(0, "old", attempt=1) == ()
    assert life.stream == before


def test_silence_for_a_second_moves_on_and_tells_the_silent_one() -> None:
    life = Life()
    life.choose("r0")
    assert life.tick(1.0) == ()
    assert moved(life.tick(1.1)) == ("silent", True)


def test_who_gave_no_sign_of_life_may_be_asked_once_more_and_not_twice() -> None:
    """Both owners may be held up for a moment, as by a paused machine; one that never answers is given up."""
    life = Life()
    life.choose("r0")
    life.tick(1.1)
    assert life.stream.tried == ()
    life.now_s = 1.1
    life.choose("r0")
    assert moved(life.tick(2.3)) == ("silent", True)
    assert life.stream.tried == ("r0",)


def test_no_request_waits_for_one_silent_replica_after_the_other() -> None:
    """Three may be asked, and three silences are forgiven."""
    life, asked = Life(), 0
    while life.stream.phase is not Phase.DONE:
        life.choose(f"r{asked}")
        asked += 1
        life.tick(life.now_s + 1.1)
    why = failure(life.actions[-1:])  # type: ignore[arg-type]
    assert (asked, why.status, why.code) == (6, 503, "silent")
    assert why.message.startswith("6 replicas could not take the request: ")


def test_a_replica_that_never_begins() -> None:
    life = Life()
    life.choose("r0")
    life.queue()
    assert life.tick(30.0) == ()
    assert moved(life.tick(30.1)) == ("accept_deadline", True)


def test_c41_the_wait_is_bounded_over_all_attempts() -> None:
    life = Life()
    for attempt, now_s in ((1, 0.0), (2, 30.1)):
        life.now_s = now_s
        life.choose(f"r{attempt}")
        life.queue(attempt)
        life.tick(now_s + 30.1)
    why = failure(life.actions[-1:])  # type: ignore[arg-type]
    assert (why.status, why.code, why.heals) == (503, "no_token_in_time", True)


def test_a_refusal_that_is_final_is_the_answer() -> None:
    life = Life()
    life.choose("r0")
    why = failure(life.refuse("context_length_exceeded", elsewhere=False))
    assert (why.status, why.code, why.param) == (400, "context_length_exceeded", "messages")


def test_refused_everywhere_is_the_last_refusal() -> None:
    life = Life()
    for attempt in (1, 2, 3):
        life.choose(f"r{attempt}")
        actions = life.refuse("overloaded", attempt=attempt)
    why = failure(actions)
    assert (why.status, why.message, why.headers) == (503, "It is overloaded.", {"retry-after": "4"})


def test_refused_and_nobody_else_is_the_last_refusal() -> None:
    life = Life()
    life.choose("r0")
    life.refuse("draining")
    assert failure(life.choose(None)).message == "It is draining."


def test_somebody_may_come_so_a_request_waits_a_little() -> None:
    life = Life()
    nobody = NoChoice(reason="Nobody is ready.", may_change=True)
    assert life.take(streams.chosen(life.stream, nobody, POLICY, 1.9)) == (Wait(),)
    assert life.tick(1.95) == ()
    assert failure(life.take(streams.chosen(life.stream, nobody, POLICY, 2.0))).message == "Nobody is ready."


def test_who_waits_for_somebody_may_leave() -> None:
    life = Life()
    life.take(streams.chosen(life.stream, NoChoice(reason="Nobody.", may_change=True), POLICY, 0.0))
    assert [type(action) for action in life.take(endings.left(life.stream, "The client left."))] == [Fail]
    assert life.choose("r0") == ()


def test_a_replica_that_accepts_another_version_is_not_listened_to() -> None:
    life = Life()
    life.choose("r0")
    life.queue()
    assert moved(life.accept(digest="e" * 64)) == ("lost", True)


def test_nobody_at_all() -> None:
    why = failure(Life().choose(None))
    assert (why.status, why.code, why.message) == (503, "no_replica", "Nobody is there.")


def test_when_all_were_asked_in_vain_it_is_said_what_became_of_the_last() -> None:
    life = Life()
    life.choose("r0")
    life.unanswered()
    why = failure(life.choose(None))
    assert (why.code, why.message) == ("no_replica", "Nobody is there: Replica r0 is gone.")


def test_a_refusal_after_accepted_moves_as_long_as_there_is_no_token() -> None:
    assert moved(running().refuse()) == ("overloaded", False)
    life = running()
    life.chunk(0, "Good")
    assert life.refuse() == ()


def test_lost_before_the_first_token_moves_and_opens_with_the_one_that_answers() -> None:
    life = running()
    assert moved(life.lose()) == ("lost", True)
    life.choose("r1")
    [again] = life.accept(attempt=2)
    assert isinstance(again, Open)
    assert life.chunk(0, "Good", attempt=2) == (Deliver(text="Good", token_ids=(0,), first=True),)


def test_a_replica_that_never_had_the_request_did_not_die_on_it() -> None:
    life = Life()
    life.choose("r0")
    life.lose()
    assert life.stream.dead == ()


def test_a_token_that_came_before_is_not_said_twice() -> None:
    life = running()
    life.chunk(0, "Good")
    assert life.chunk(0, "Good") == ()


def test_a_stream_that_stalls_goes_on_elsewhere() -> None:
    life = running()
    life.now_s = 5.0
    life.chunk(0, "Good")
    assert life.tick(25.0) == ()
    assert moved(life.tick(25.1)) == ("lost", True)
    assert "no token for 20 s" in life.stream.trouble


def test_c76_the_client_leaves() -> None:
    life = running()
    life.chunk(0, "Good")
    abandoned, failed = life.take(endings.left(life.stream, "The client left."))
    assert isinstance(abandoned, Abandon)
    assert abandoned.tell
    assert isinstance(failed, Fail)
    assert life.take(endings.left(life.stream, "The client left.")) == ()


def test_c83_a_reader_that_is_too_slow() -> None:
    life = running()
    life.chunk(0, "Good")
    assert failure(life.take(endings.overflowed(life.stream, 1_024))).code == "slow_reader"


def test_c35_a_bus_that_does_not_take_the_question_is_waited_for_a_little() -> None:
    life = Life()
    life.choose("r0")
    why = refusal.unavailable("The bus is away.")
    assert life.undelivered(why, attempt=0) == ()
    assert [type(action) for action in life.undelivered(why)] == [Abandon, Wait]
    life.now_s = 2.0
    [asked] = life.choose("r0")
    assert isinstance(asked, Ask), "it never had the question, so it may be asked"
    assert failure(life.undelivered(why, attempt=2)) == why


def test_a_question_that_no_bus_could_take_is_not_put_again() -> None:
    life = Life()
    life.choose("r0")
    too_large = refusal.bad_request("Too long.", status=413)
    assert failure(life.undelivered(too_large)) == too_large


def test_nothing_changes_what_is_over() -> None:
    life = running()
    life.finish(0)
    over = life.stream
    for heard in (life.lose, life.queue, life.accept, life.refuse):
        assert heard() == ()
    assert life.chunk(0, "late") == ()
    assert life.tick(1_000.0) == ()
    assert life.stream == over
