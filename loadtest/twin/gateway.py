"""One gateway: where each request goes, and what becomes of it when a replica refuses it or falls silent.

`route` chooses; `streams` decides what a refusal, a silence or a deadline leads to. The way of a request on which
nothing of the kind happens has no decision in it, and is not asked for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from loadtest.twin.agenda import Agenda
from loadtest.twin.replica import Replica
from loadtest.twin.request import Attempt, Request
from loadtest.twin.scenario import Scenario
from loadtest.twin.streaming import message_of, stream_of
from loadtest.twin.way import Way
from services.gateway.core import failover, streams
from services.gateway.core.fleet import Fleet
from services.gateway.core.routing import Choice, Question, route
from services.gateway.core.stream import Fail, Reroute, Step, Stream, Wait
from services.replica_worker.core.admission import Refusal
from shared.messages.reports import ReplicaReport, Residency

FRESH_S = 3.0
TICK_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a gateway works with: `replica` finds the living process of a name, if there is one, and `computing` says
    how many replicas take steps just now."""

    agenda: Agenda
    scenario: Scenario
    draw: random.Random
    replica: Callable[[str], Replica | None]
    computing: Callable[[], int]
    on_over: Callable[[Request], None]


class Gateway:
    def __init__(self, gateway_id: str, around: Around) -> None:
        self.gateway_id = gateway_id
        self.fleet = Fleet(FRESH_S)
        self.live: dict[Request, None] = {}
        self.by_replica: dict[str, dict[Request, None]] = {}
        self._around = around
        self._agenda = around.agenda
        self._routing, self._streams = around.scenario.routing, around.scenario.streams
        self._way = Way(around.scenario.timing, around.agenda, around.draw, around.computing)
        self._incarnations: dict[str, str] = {}
        """Of each replica, the one that reported last."""
        self._answered: dict[str, list[str]] = {}
        """By replica, requests that it has and that are in no report of it yet."""

    def begin(self, request: Request) -> None:
        self.live[request] = None
        self._route(request)

    # -- what it hears ---------------------------------------------------------------------------------

    def on_report(self, report: ReplicaReport) -> None:
        """Whoever was answered before a replica reported is in that report, as both travel in order."""
        sends = self.fleet.sends(report.replica_id)
        for bus_id in self._answered.pop(report.replica_id, ()):
            sends.answered(bus_id)
        self.fleet.on_report(report, self._agenda.now_s)
        if self._incarnations.get(report.replica_id) != report.incarnation:
            self._incarnations[report.replica_id] = report.incarnation
            self._lose(report.replica_id, f"Replica {report.replica_id} restarted.", _another_than(report.incarnation))

    def on_residency(self, message: Residency) -> None:
        self.fleet.on_residency(message, self._agenda.now_s)

    def on_received(self, attempt: Attempt) -> None:
        """The replica says at once that it has the request."""
        self._answered.setdefault(attempt.replica_id, []).append(attempt.id)

    def on_first(self, attempt: Attempt, at_s: float) -> None:
        request = attempt.request
        if request.attempt is attempt:
            attempt.streams = True
            if request.first_s is None:
                request.first_s, request.tier = at_s, attempt.tier

    def on_ended(self, attempt: Attempt) -> None:
        request = attempt.request
        if request.attempt is not attempt:
            return
        self._forget(attempt)
        self._over(request, "ok")

    def on_refused(self, attempt: Attempt, refusal: Refusal) -> None:
        if attempt.request.attempt is attempt:
            self._follow(
                attempt.request,
                streams.refused(
                    stream_of(attempt.request), message_of(attempt, refusal), self._streams, self._agenda.now_s
                ),
            )

    def look_for_silence(self) -> None:
        """Streams of replicas that fell silent are lost."""
        now_s = self._agenda.now_s
        for name in [name for name, requests in self.by_replica.items() if requests]:
            if self.fleet.is_silent(name, now_s):
                self._lose(name, f"Replica {name} fell silent.", lambda _: True)

    def look_at_deadlines(self) -> None:
        now_s = self._agenda.now_s
        for request in list(self.live):
            if request.attempt is not None and not request.attempt.streams:
                self._follow(request, streams.tick(stream_of(request), self._streams, now_s))

    # -- what it decides -------------------------------------------------------------------------------

    def _route(self, request: Request) -> None:
        question = Question(
            adapter=request.record.key,
            pool_ids=request.pool_ids,
            tokens=request.tokens,
            tried=frozenset(request.tried),
            merged_pool_ids=request.merged_pool_ids,
        )
        now_s = self._agenda.now_s
        choice = route(self.fleet, question, self._routing, now_s, self._around.draw.random())
        if isinstance(choice, Choice):
            self._ask(request, choice)
        else:
            self._follow(request, streams.chosen(stream_of(request), choice, self._streams, now_s))

    def _ask(self, request: Request, choice: Choice) -> None:
        request.attempts += 1
        request.tried = (*request.tried, choice.replica_id)
        request.rule, request.replica_id, request.pool_id = choice.rule, choice.replica_id, choice.pool_id
        request.asked_at_s = self._agenda.now_s
        call = request.call
        attempt = request.attempt = Attempt(
            adapter=request.record.key, prompt_tokens=call.prompt_tokens + request.produced,
            output_tokens=call.output_tokens - request.produced,
            id=f"{request.number}-{request.attempts}", request=request, replica_id=choice.replica_id,
            incarnation=choice.incarnation, pool_id=choice.pool_id, promised=request.tokens,
        )  # fmt: skip
        self.fleet.sends(choice.replica_id).sent(attempt.id, request.tokens)
        self.by_replica.setdefault(choice.replica_id, {})[request] = None
        self._way.send(choice.replica_id, self._arrive, attempt)

    def _arrive(self, attempt: Attempt) -> None:
        if attempt.request.attempt is not attempt:
            return
        replica = self._around.replica(attempt.replica_id)
        if replica is None:
            self.fleet.on_unanswered(attempt.replica_id)
            stream, now_s = stream_of(attempt.request), self._agenda.now_s
            self._follow(attempt.request, failover.unanswered(stream, attempt.id, self._streams, now_s))
            return
        replica.receive(attempt, self.on_received)

    def _lose(self, replica_id: str, reason: str, is_lost: Callable[[Request], bool]) -> None:
        for request in [request for request in self.by_replica.get(replica_id, ()) if is_lost(request)]:
            self._follow(request, failover.lost(stream_of(request), reason, self._streams, self._agenda.now_s))

    def _follow(self, request: Request, step: Step) -> None:
        """Do what a step of its stream says."""
        stream, actions = step
        request.tried, request.dead = stream.tried, stream.dead
        if request.attempt is not None and any(isinstance(each, Reroute | Fail) for each in actions):
            self._abandon(request, request.attempt)
        for action in actions:
            match action:
                case Wait():
                    self._agenda.after(TICK_S, self._route, request)
                case Reroute():
                    request.trouble, request.chooses_since_s = action.reason, stream.since_s
                    self._go_on(request, stream)
                case Fail():
                    self._over(request, action.refusal.code or "failed")

    def _go_on(self, request: Request, stream: Stream) -> None:
        """Who has read something goes on from there; from what this gateway has told of, which is a second less."""
        if stream.shown:
            request.broke_at_s = stream.began_s
            request.produced = min(request.counted, request.call.output_tokens - 1)
        self._route(request)

    def _abandon(self, request: Request, attempt: Attempt) -> None:
        self._forget(attempt)
        request.attempt = None
        replica = self._around.replica(attempt.replica_id)
        if replica is not None:
            replica.stop(attempt)

    def _forget(self, attempt: Attempt) -> None:
        self.fleet.sends(attempt.replica_id).ended(attempt.id)
        self.by_replica[attempt.replica_id].pop(attempt.request, None)

    def _over(self, request: Request, outcome: str) -> None:
        request.ended_s, request.outcome, request.attempt = self._agenda.now_s, outcome, None
        del self.live[request]
        self._around.on_over(request)


def _another_than(incarnation: str) -> Callable[[Request], bool]:
    """Whether a request is with an earlier process of its replica."""

    def is_lost(request: Request) -> bool:
        attempt = request.attempt
        return attempt is not None and attempt.received and attempt.incarnation != incarnation

    return is_lost
