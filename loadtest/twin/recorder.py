"""Writes down what happens while it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtest.twin.agenda import Agenda
from loadtest.twin.fleet import ReplicaFleet
from loadtest.twin.outcome import Answered, Outcome, ReplicaSecond, Second
from loadtest.twin.replica import Replica
from loadtest.twin.request import Request
from shared.messages.desired import OwnerCount

if TYPE_CHECKING:
    from loadtest.twin.twin import Twin


class Recorder:
    def __init__(self, fleet: ReplicaFleet, agenda: Agenda, began_s: float) -> None:
        self.wishes: dict[str, int] = {}
        self._fleet = fleet
        self._agenda = agenda
        self._began_s = began_s
        self._answered: list[Answered] = []
        self._seconds: list[Second] = []
        self._owners: list[tuple[float, str, int]] = []
        self._counts: dict[str, int] = {}

    def on_over(self, request: Request) -> None:
        call, first_s, ended_s = request.call, request.first_s, request.ended_s
        assert ended_s is not None, "it is over"
        tokens = call.output_tokens if request.outcome == "ok" else request.counted
        ttft_s = None if first_s is None else first_s - request.began_s
        row = Answered(
            call.at_s, call.adapter, call.tenant, ttft_s, ended_s - self._began_s, request.outcome, request.tier,
            request.replica_id, request.rule, tokens, request.attempts,
        )  # fmt: skip
        self._answered.append(row)

    def on_owner_count(self, count: OwnerCount) -> None:
        for name in count.exceptions.keys() | self._counts.keys():
            owners = count.exceptions.get(name, count.owners)
            if self._counts.get(name, count.owners) != owners:
                self._counts[name] = owners
                self._owners.append((self._agenda.now_s - self._began_s, name, owners))

    def look(self) -> None:
        replicas = tuple(_second(replica) for replica in self._fleet)
        at_s = self._agenda.now_s - self._began_s
        self._seconds.append(Second(at_s, replicas, len(self._fleet.starting), dict(self.wishes)))

    def outcome(self, twin: Twin, wall_s: float) -> Outcome:
        scenario = twin.scenario
        return Outcome(
            requests=tuple(self._answered),
            seconds=tuple(self._seconds),
            owners=tuple(self._owners),
            broken=tuple(twin.invariants.broken),
            for_s=scenario.for_s,
            warm_up_s=scenario.warm_up_s,
            simulated_s=self._agenda.now_s,
            wall_s=wall_s,
            events=self._agenda.events,
            usd_per_replica_hour=scenario.usd_per_replica_hour,
            objective_s=scenario.ttft_objective_s,
            reasons=tuple(self._reasons(twin)),
        )

    def _reasons(self, twin: Twin) -> list[tuple[float, str]]:
        told = [reason for placement in twin.placements for reason in placement.reasons]
        told += twin.scaling.reasons if twin.scaling is not None else []
        return sorted((at_s - self._began_s, reason) for at_s, reason in told)


def _second(replica: Replica) -> ReplicaSecond:
    turnover, body, running = replica.slots.table.turnover, replica.body, len(replica.batch.rows.running)
    return ReplicaSecond(
        body.replica_id, replica.promises.total, running, replica.waiting, turnover.loads, turnover.evictions,
        body.batch.max_rows, replica.draining,
    )  # fmt: skip
