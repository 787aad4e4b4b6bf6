"""Wherever the replicas of one request die, its client reads what it would have read from one that lives.

The gateway's core and the worker's way from tokens to text, with nothing between them: a replica says, token by
token, what its engine produces, and dies before its client has heard the last of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.core import failover, streams
from services.gateway.core.question import Choice
from services.gateway.core.stream import Ask, Deliver, Fail, Phase, Step, Stream, StreamPolicy
from services.gateway.core.transcript import Transcript
from services.replica_worker.engine.port import EngineRequest, StepToken
from services.replica_worker.requests.answer_text import AnswerText
from services.replica_worker.requests.running import Running
from services.replica_worker.text.tokenizer import Tokenizer
from shared.contracts.catalog import FRAME, GENERATE
from shared.contracts.codec import decode, encode
from shared.messages.generation import (
    Accepted,
    ChatMessage,
    Finish,
    Frame,
    GenerateRequest,
    Queued,
    Sampling,
    TokenChunk,
)
from tests.support.tiny_model import tiny_model_once

PROMPT = [1, 2, 3]
POLICY = StreamPolicy(most_deaths=100, most_attempts=100)
"""Replicas may die here as often as they like: what is at stake is the text."""
WHOLE = "Zoë 👩‍🚀👩‍🚀 says 漢字, e\u0301 and ST, STO, STOP here"
STOPS = ((), ("STOP",), ("👩‍🚀 s", "STOP"), ("字, e\u0301",), ("never",))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(tiny_model_once(tmp_path_factory))


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has when its stream is over."""

    text: str
    token_ids: tuple[int, ...]
    finish: Finish


class Fleet:
    """Replicas whose engines all produce the same answer, token by token, from whatever of it they are given."""

    def __init__(self, tokenizer: Tokenizer, answer: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.answer = answer

    def asks(self, running: Running) -> EngineRequest:
        """What the engine is asked."""
        return running.for_engine()

    def engine(self, request: EngineRequest) -> Iterator[StepToken]:
        begun = len(request.prompt_token_ids) - len(PROMPT)
        assert list(request.prompt_token_ids) == [*PROMPT, *self.answer[:begun]], "another prompt, another answer"
        for at, token_id in enumerate(self.answer[begun:][: request.max_tokens]):
            finish = "length" if at + 1 == request.max_tokens else None
            yield StepToken(request.request_id, token_id, request.first_position + at, finish)


def worker(fleet: Fleet, request: GenerateRequest) -> Iterator[TokenChunk]:
    """The chunks of a living replica for one request."""
    running = Running(request=request, arrived_at_s=0.0, prompt_token_ids=PROMPT)
    running.answer_tokens_limit = request.sampling.max_tokens or 0
    produced, sampling = request.produced_token_ids, request.sampling
    running.text = AnswerText(fleet.tokenizer, sampling.stop, produced, request.produced_text_chars)
    if (over := running.over_before()) is not None:
        yield running.end(over)
        return
    for token in fleet.engine(fleet.asks(running)):
        chunk = running.advance(token)
        yield chunk
        if chunk.finish is not None:
            return


class Client:
    """One request at its gateway."""

    def __init__(self, fleet: Fleet, stop: tuple[str, ...]) -> None:
        self._fleet = fleet
        self._sampling = Sampling(seed=1, max_tokens=len(fleet.answer), temperature=0.0, stop=stop)
        self._transcript = Transcript()
        self._stream = Stream(request_id="q", began_s=0.0)
        self._asked: Ask | None = None
        self._text = ""
        self._finish: Finish | None = None

    def read(self, heard: Sequence[int] = ()) -> Said:
        """`heard` so many chunks of one replica after the other before it dies; then one lives."""
        deaths = iter(heard)
        while self._finish is None:
            self._begin()
            for chunk in self._as_far_as(next(deaths, None)):
                self._take(streams.chunk(self._stream, chunk, POLICY, 0.0))
            if self._finish is None:
                self._take(failover.lost(self._stream, "Killed.", POLICY, 0.0))
        assert self._stream.phase is Phase.DONE
        return Said(text=self._text, token_ids=self._transcript.token_ids, finish=self._finish)

    def _begin(self) -> None:
        name = f"r{self._stream.attempt}"
        choice = Choice(replica_id=name, pool_id="p", incarnation="i", reason="", rule="")
        self._take(streams.chosen(self._stream, choice, POLICY, 0.0))
        bus_id = self._stream.bus_id
        queued = Queued(request_id=bus_id, replica_id=name, incarnation="i")
        accepted = Accepted(
            request_id=bus_id, replica_id=name, incarnation="i", tier="gpu", prompt_tokens=len(PROMPT), seed=1
        )
        self._take(streams.queued(self._stream, queued, 0.0))
        self._take(streams.accepted(self._stream, accepted, POLICY, 0.0))

    def _as_far_as(self, heard: int | None) -> Iterator[TokenChunk]:
        """Over the wire and back."""
        for number, chunk in enumerate(worker(self._fleet, self._request()), start=1):
            if heard is not None and number > heard:
                return
            frame = Frame(replica_id="r", incarnation="i", number=number, chunks=(chunk,))
            yield from decode(FRAME, encode(FRAME, frame)).chunks

    def _request(self) -> GenerateRequest:
        request = GenerateRequest(
            request_id=self._stream.bus_id, gateway_id="g", tenant_id="t", pool_id="p", base_model_hash="b",
            messages=(ChatMessage(role="user", content="hello"),), sampling=self._sampling,
            produced_token_ids=self._produced(), produced_text_chars=self._transcript.text_chars,
        )  # fmt: skip
        return decode(GENERATE, encode(GENERATE, request))

    def _produced(self) -> tuple[int, ...]:
        return self._transcript.token_ids

    def _take(self, step: Step) -> None:
        self._stream, actions = step
        for action in actions:
            assert not isinstance(action, Fail)
            if isinstance(action, Deliver):
                self._text += action.text
                self._transcript.add(action.token_ids, action.text)
                self._finish = action.finish


@pytest.mark.parametrize("stop", STOPS)
def test_c77_c78_a_death_after_any_token_changes_nothing_that_the_client_reads(
    tokenizer: Tokenizer, stop: tuple[str, ...]
) -> None:
    fleet = Fleet(tokenizer, tokenizer.encode_text(WHOLE))
    alone = Client(fleet, stop).read()
    cut = min((WHOLE.index(each) for each in stop if each in WHOLE), default=len(WHOLE))
    assert alone.text == WHOLE[:cut]
    for heard in range(len(alone.token_ids)):
        assert Client(fleet, stop).read([heard]) == alone
        assert Client(fleet, stop).read([heard, 0, 1, 2]) == alone


pieces = st.sampled_from(["👩‍🚀", "漢", "e\u0301", "S", "T", "O", "P", "ST", "STO", " ", "\ufffd", "a"])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_text_and_no_deaths_make_a_difference(tokenizer: Tokenizer, data: st.DataObject) -> None:
    answer = tokenizer.encode_text("".join(data.draw(st.lists(pieces, min_size=1, max_size=12))))
    fleet = Fleet(tokenizer, answer[: data.draw(st.integers(1, len(answer)))])  # it may end inside a character
    stop = data.draw(st.sampled_from([(), ("STOP",), ("TO", "👩‍🚀S"), ("漢e",)]))
    alone = Client(fleet, stop).read()
    heard = data.draw(st.lists(st.integers(0, 12), max_size=6))
    assert Client(fleet, stop).read(heard) == alone


@pytest.mark.parametrize("sent_chars", range(len("abcdefgh") + 1))
def test_a_replica_that_holds_back_more_or_less_than_the_one_before_sends_each_character_once(
    tokenizer: Tokenizer, sent_chars: int
) -> None:
    token_ids = tokenizer.encode_text("abcdefgh")
    for read in range(sent_chars and 1, len(token_ids)):
        text = AnswerText(tokenizer, (), token_ids[:read], sent_chars)
        rest = "".join(text.push(token_id) for token_id in token_ids[read:]) + text.flush()
        assert rest == "abcdefgh"[sent_chars:]


def test_a_gateway_that_tells_of_a_token_less_gets_it_again_and_the_client_does_not(tokenizer: Tokenizer) -> None:
    class Forgetful(Client):
        def _produced(self) -> tuple[int, ...]:
            return super()._produced()[:-1]

    fleet = Fleet(tokenizer, tokenizer.encode_text(WHOLE))
    for heard in range(len(fleet.answer)):
        assert Forgetful(fleet, ("STOP",)).read([heard]) == Client(fleet, ("STOP",)).read()


def test_an_engine_that_is_given_a_token_less_than_was_produced_is_seen(tokenizer: Tokenizer) -> None:
    class Forgetful(Fleet):
        def asks(self, running: Running) -> EngineRequest:
            asked = super().asks(running)
            keep = max(len(PROMPT), len(asked.prompt_token_ids) - 1)
            return msgspec.structs.replace(asked, prompt_token_ids=asked.prompt_token_ids[:keep])

    answer = tokenizer.encode_text(WHOLE)
    alone = Client(Fleet(tokenizer, answer), ()).read()
    for heard in range(1, len(answer)):
        assert Client(Forgetful(tokenizer, answer), ()).read([heard]) != alone
