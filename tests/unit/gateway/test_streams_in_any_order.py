"""Whatever happens to a request, in whatever order: no token twice, none lost without an error."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.core import endings, failover, refusal, streams
from services.gateway.core.routing import Choice, NoChoice
from services.gateway.core.stream import (
    Abandon,
    Action,
    Ask,
    Deliver,
    Fail,
    Open,
    Phase,
    Reroute,
    Step,
    Stream,
    StreamPolicy,
    Wait,
)
from shared.messages.generation import Accepted, Finish, Queued, Refused, TokenChunk, Usage

POLICY = StreamPolicy(queued_s=1.0, accept_s=5.0, first_token_s=20.0, stall_s=8.0)
ANSWER = ("a", "b", "c", "d")
END = Finish(reason="stop", usage=Usage(prompt_tokens=1, completion_tokens=len(ANSWER)))

Event = Callable[[Stream, float], Step]


class Client:
    """What reaches the client, checked as it comes."""

    def __init__(self) -> None:
        self.stream = Stream(request_id="q", began_s=0.0)
        self.text = ""
        self.opened = False
        self.choosing = True
        self.over = False
        self.unfinished: set[str] = set()

    def take(self, step: Step) -> None:
        self.stream, actions = step
        for action in actions:
            self.act(action)
        assert self.over == (self.stream.phase is Phase.DONE)
        assert not (self.over and self.unfinished), "a replica works on for nobody"

    def act(self, action: Action) -> None:
        match action:
            case Ask():
                assert action.replica_id not in self.stream.dead
                self.unfinished.add(action.bus_id)
            case Abandon():
                self.unfinished.remove(action.bus_id)
            case Reroute() | Wait():
                self.choosing = True
            case Open():
                self.opened = True
            case Deliver():
                self.receive(action)
            case Fail():
                assert not self.over
                self.over = True

    def receive(self, deliver: Deliver) -> None:
        assert not self.over
        assert self.opened, "a token of a replica that the client was not told of"
        assert deliver.first == (self.text == "")
        self.text += deliver.text
        assert "".join(ANSWER).startswith(self.text), "a token twice, missing or out of order"
        if deliver.finish is not None:
            assert self.text == "".join(ANSWER), "a clean end of an incomplete answer"
            self.over = True


def id_of(stream: Stream, back: int) -> str:
    """On the bus, of the current attempt or of one before it."""
    return f"q-{stream.attempt - back}"


def chunk(request_id: str, position: int) -> TokenChunk:
    if position == len(ANSWER):
        return TokenChunk(request_id=request_id, position=position, token_ids=(), text="", finish=END)
    return TokenChunk(request_id=request_id, position=position, token_ids=(position,), text=ANSWER[position])


def said(back: int, first: int, last: int) -> list[Event]:
    """A run of chunks; backwards it is none."""

    def event(position: int) -> Event:
        return lambda stream, now_s: streams.chunk(stream, chunk(id_of(stream, back), position), POLICY, now_s)

    return [event(position) for position in range(first, last + 1)]


def queued(back: int) -> list[Event]:
    def event(stream: Stream, now_s: float) -> Step:
        message = Queued(request_id=id_of(stream, back), replica_id="r", incarnation="i")
        return streams.queued(stream, message, now_s)

    return [event]


def accepted(back: int) -> list[Event]:
    def event(stream: Stream, now_s: float) -> Step:
        message = Accepted(
            request_id=id_of(stream, back), replica_id="r", incarnation="i", tier="gpu", prompt_tokens=1, seed=1
        )  # fmt: skip
        return streams.accepted(stream, message, POLICY, now_s)

    return [event]


def served(last: int) -> list[Event]:
    """What usually happens, so that the unusual happens at every stage of it."""
    return [*queued(0), *accepted(0), *said(0, 0, last)]


def overtaken(last: int) -> list[Event]:
    """The same, but the first tokens come before the word that they will."""
    return [*said(0, 0, last), *accepted(0)]


def refused(back: int, elsewhere: bool) -> list[Event]:
    def event(stream: Stream, now_s: float) -> Step:
        message = Refused(
            request_id=id_of(stream, back), replica_id="r", code="draining", message="No.", elsewhere=elsewhere
        )  # fmt: skip
        return streams.refused(stream, message, POLICY, now_s)

    return [event]


def unanswered(back: int) -> list[Event]:
    return [lambda stream, now_s: failover.unanswered(stream, id_of(stream, back), POLICY, now_s)]


def undelivered(back: int) -> list[Event]:
    why = refusal.unavailable("The bus is away.")
    return [lambda stream, now_s: failover.undelivered(stream, id_of(stream, back), why, POLICY, now_s)]


def lost() -> list[Event]:
    return [lambda stream, now_s: failover.lost(stream, "Gone.", POLICY, now_s)]


def given_up() -> list[Event]:
    return [lambda stream, now_s: failover.given_up(stream, "Tokens are lost.", POLICY, now_s)]


def left() -> list[Event]:
    return [lambda stream, _: endings.left(stream, "The client left.")]


def ticked() -> list[Event]:
    return [lambda stream, now_s: streams.tick(stream, POLICY, now_s)]


backs = st.sampled_from([0, 0, 0, 1])
positions = st.integers(0, len(ANSWER))
events = st.one_of(
    st.builds(served, positions),
    st.builds(overtaken, positions),
    st.builds(accepted, backs),
    st.builds(said, backs, st.just(0), positions),
    st.builds(said, backs, positions, positions),
    st.builds(lost),
    st.builds(given_up),
    st.builds(undelivered, backs),
    st.builds(queued, backs),
    st.builds(refused, backs, st.booleans()),
    st.builds(unanswered, backs),
    st.builds(ticked),
    st.builds(left),
)
replica_ids = st.sampled_from(["r0", "r1", "r2", "r3", "r0", "r1", "r2", "r3", None])
turns = st.tuples(events, st.sampled_from([0.0, 0.0, 0.0, 1.5, 6.0]), replica_ids)
scripts = st.lists(turns, max_size=25)
Script = list[tuple[list[Event], float, str | None]]


def play(client: Client, script: Script) -> float:
    """When the last of it happened."""
    now_s = 0.0
    for happens, pause_s, replica_id in script:
        now_s += pause_s
        choose(client, replica_id, now_s)
        for event in happens:
            client.take(event(client.stream, now_s))
    return now_s


def choose(client: Client, replica_id: str | None, now_s: float) -> None:
    if client.choosing and not client.over:
        client.choosing = False
        client.take(streams.chosen(client.stream, offered(replica_id, client.stream), POLICY, now_s))


@settings(max_examples=1_000)
@given(scripts)
def test_no_order_of_events_repeats_or_loses_a_token(script: Script) -> None:
    play(Client(), script)


@given(scripts)
def test_every_request_ends(script: Script) -> None:
    """Time alone ends what nobody answers."""
    client = Client()
    now_s = begun_s = play(client, script)
    while not client.over:
        now_s += 1.0
        assert now_s - begun_s < 100.0
        choose(client, "r0", now_s)
        client.take(streams.tick(client.stream, POLICY, now_s))


def offered(replica_id: str | None, stream: Stream) -> Choice | NoChoice:
    """What routing would say: never a replica that was tried."""
    free = [name for name in ("r0", "r1", "r2", "r3") if name not in stream.tried]
    if replica_id is None or not free:
        return NoChoice(reason="Nobody is there.", may_change=not stream.tried)
    chosen = replica_id if replica_id in free else free[0]
    return Choice(replica_id=chosen, pool_id="p", incarnation="i", reason="", rule="")
