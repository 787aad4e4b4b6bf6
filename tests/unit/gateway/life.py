"""Drives the cores of one request by what is heard, and reads what came of it."""

from __future__ import annotations

from services.gateway.core import failover, refusal, streams
from services.gateway.core.routing import Choice, NoChoice
from services.gateway.core.stream import Abandon, Action, Fail, Reroute, Step, Stream, StreamPolicy
from shared.messages.generation import Accepted, Finish, Queued, Refused, TokenChunk, Usage
from tests.unit.gateway.samples import ADAPTER

POLICY = StreamPolicy(queued_s=1.0, accept_s=30.0, first_token_s=60.0, stall_s=20.0, most_attempts=3, most_deaths=2)
USAGE = Usage(prompt_tokens=3, completion_tokens=2)


class Life:
    """One request, driven by what is heard; keeps every action that came of it."""

    def __init__(self) -> None:
        self.stream = Stream(request_id="q", began_s=0.0, adapter=ADAPTER)
        self.actions: list[Action] = []
        self.now_s = 0.0

    def take(self, step: Step) -> tuple[Action, ...]:
        self.stream, actions = step
        self.actions += actions
        return actions

    def choose(self, replica_id: str | None) -> tuple[Action, ...]:
        choice = (
            NoChoice(reason="Nobody is there.")
            if replica_id is None
            else Choice(replica_id=replica_id, pool_id="p", incarnation="i", reason="first", rule="first")
        )
        return self.take(streams.chosen(self.stream, choice, POLICY, self.now_s))

    def queue(self, attempt: int = 1) -> tuple[Action, ...]:
        message = Queued(request_id=f"q-{attempt}", replica_id="r", incarnation="i1")
        return self.take(streams.queued(self.stream, message, self.now_s))

    def accept(self, attempt: int = 1, digest: str | None = None) -> tuple[Action, ...]:
        message = Accepted(
            request_id=f"q-{attempt}", replica_id="r", incarnation="i1", tier="gpu", prompt_tokens=3, seed=1,
            adapter_id=ADAPTER.adapter_id, digest=ADAPTER.digest if digest is None else digest,
        )  # fmt: skip
        return self.take(streams.accepted(self.stream, message, POLICY, self.now_s))

    def refuse(self, code: str = "overloaded", *, elsewhere: bool = True, attempt: int = 1) -> tuple[Action, ...]:
        message = Refused(
            request_id=f"q-{attempt}", replica_id="r", code=code, message=f"It is {code}.", elsewhere=elsewhere,
            retry_after_s=4.0,
        )  # fmt: skip
        return self.take(streams.refused(self.stream, message, POLICY, self.now_s))

    def chunk(self, position: int, text: str, attempt: int = 1, finish: Finish | None = None) -> tuple[Action, ...]:
        ids = () if finish is not None and not text else (position,)
        piece = TokenChunk(request_id=f"q-{attempt}", position=position, token_ids=ids, text=text, finish=finish)
        return self.take(streams.chunk(self.stream, piece, POLICY, self.now_s))

    def finish(self, position: int, reason: str = "stop", attempt: int = 1) -> tuple[Action, ...]:
        return self.chunk(position, "", attempt, Finish(reason=reason, usage=USAGE, error=None))

    def lose(self, reason: str = "Replica r restarted.") -> tuple[Action, ...]:
        return self.take(failover.lost(self.stream, reason, POLICY, self.now_s))

    def give_up(self, reason: str = "Tokens are lost.") -> tuple[Action, ...]:
        return self.take(failover.given_up(self.stream, reason, POLICY, self.now_s))

    def unanswered(self, attempt: int = 1) -> tuple[Action, ...]:
        return self.take(failover.unanswered(self.stream, f"q-{attempt}", POLICY, self.now_s))

    def undelivered(self, why: refusal.Refusal, attempt: int = 1) -> tuple[Action, ...]:
        return self.take(failover.undelivered(self.stream, f"q-{attempt}", why, POLICY, self.now_s))

    def begin(self, replica_id: str, attempt: int) -> tuple[Action, ...]:
        """Another attempt, as far as its first token."""
        self.choose(replica_id)
        self.queue(attempt)
        return self.accept(attempt)

    def tick(self, now_s: float) -> tuple[Action, ...]:
        self.now_s = now_s
        return self.take(streams.tick(self.stream, POLICY, now_s))


def running(*texts: str) -> Life:
    """On replica r0, which has sent these, a token each."""
    life = Life()
    life.begin("r0", 1)
    for position, text in enumerate(texts):
        life.chunk(position, text)
    return life


def failure(actions: tuple[Action, ...]) -> refusal.Refusal:
    assert isinstance(actions[-1], Fail), actions
    return actions[-1].refusal


def moved(actions: tuple[Action, ...]) -> tuple[str, bool]:
    """The cause of a reroute, and whether the replica that is left was told."""
    assert [type(action) for action in actions] == [Abandon, Reroute], actions
    abandon, reroute = actions
    assert isinstance(abandon, Abandon)
    assert isinstance(reroute, Reroute)
    return reroute.cause, abandon.tell
