"""A scenario run from its first call to its last token."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial

from loadtest.twin.activity import Activity
from loadtest.twin.agenda import Agenda
from loadtest.twin.book import Book
from loadtest.twin.collecting import seldom_collected
from loadtest.twin.crowd import Crowd
from loadtest.twin.faults import schedule
from loadtest.twin.fleet import ReplicaFleet
from loadtest.twin.gateway import TICK_S, Around, Gateway
from loadtest.twin.ground import Ground
from loadtest.twin.invariants import Invariants
from loadtest.twin.listening import gateway_listens, placement_listens, scaling_listens
from loadtest.twin.outcome import Outcome
from loadtest.twin.placing import Placing
from loadtest.twin.recorder import Recorder
from loadtest.twin.registry import Registry
from loadtest.twin.request import Attempt, Request
from loadtest.twin.scaling import Autoscaling
from loadtest.twin.scenario import PROLOGUE_S, Scenario
from loadtest.twin.store import Store
from loadtest.twin.wire import Wire
from loadtest.workloads.call import Call, Move
from services.replica_worker.core.admission import Refusal
from shared.contracts.catalog import GATEWAY_ACTIVITY, OWNER_COUNT

DEADLINES_S = 1.0
SNAPSHOT_S = 10.0
AHEAD_S = 30.0
"""So long before an alias moves to it, a version is registered."""


class Twin:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.agenda = Agenda()
        draws = {name: random.Random(f"{scenario.seed} {name}") for name in ("route", "wire", "steps")}
        self.wire = Wire(self.agenda, scenario.timing.bus_s, draws["wire"], full=scenario.full_wire)
        self.book = Book(scenario.pools, scenario.customers, scenario.cast.adapters)
        self.registry = Registry(self.book)
        rank_classes = {pool.pool_id: pool.rank_limit for pool in scenario.pools if pool.merged is None}
        self.store = Store(self.agenda, self.wire, rank_classes)
        ground = Ground(
            agenda=self.agenda, scenario=scenario, registry=self.registry, wire=self.wire, draw=draws["steps"],
            on_first=self._on_first, on_ended=self._on_ended, on_refused=self._on_refused,
            crowd=Crowd(scenario.timing.crowd_share) if scenario.timing.crowd_share else None,
        )  # fmt: skip
        self.fleet = ReplicaFleet(ground, self.store, self.book)
        around = Around(
            agenda=self.agenda, scenario=scenario, draw=draws["route"], replica=self.fleet.living,
            computing=self.fleet.computing, on_over=self._on_over,
        )  # fmt: skip
        names = [f"gateway-{number + 1}" for number in range(scenario.gateways)]
        self.gateways = [Gateway(name, around) for name in names]
        self._activities = [Activity(name, scenario.ttft_objective_s, self.fleet.steps) for name in names]
        self.placements = [Placing(scenario.placement, self.agenda, self.registry, self.store, epoch=1)]
        self.scaling = None
        if scenario.scaling is not None:
            self.scaling = Autoscaling(scenario.scaling, self.agenda, self.fleet, self.store, self.book)
        self.recorder = Recorder(self.fleet, self.agenda, PROLOGUE_S)
        self.invariants = Invariants(self)
        self.begun = self.over = 0
        self._relay_s = scenario.timing.bus_s + scenario.timing.relay_s

    def run(self) -> Outcome:
        wall_s = time.perf_counter()
        with seldom_collected():
            self._set_up()
            calls = iter(self.scenario.calls())
            self._next_call(calls)
            check = self.invariants.after_event if self.scenario.check_every else None
            end_s = PROLOGUE_S + self.scenario.for_s
            self.agenda.run(end_s, check)
            while self.begun > self.over and self.agenda.now_s < end_s + self.scenario.tail_s:
                self.agenda.run(self.agenda.now_s + 1.0, check)
            self.invariants.check(at_the_end=True)
        return self.recorder.outcome(self, time.perf_counter() - wall_s)

    # -- the beginning ---------------------------------------------------------------------------------

    def _set_up(self) -> None:
        scenario, every = self.scenario, self.agenda.every
        self.registry.register_all(range(scenario.customers))
        for gateway, activity in zip(self.gateways, self._activities, strict=True):
            gateway_listens(gateway, self.wire, self.registry)
            if scenario.faults or scenario.scaling:
                every(TICK_S, gateway.look_for_silence, TICK_S)
            every(DEADLINES_S, gateway.look_at_deadlines, DEADLINES_S)
            every(1.0, partial(self._tell_activity, gateway, activity), 1.0)
        self.wire.read(OWNER_COUNT, self.recorder.on_owner_count)
        placement_listens(self.placements[0], self.wire)
        self.placements[0].start()
        if self.scaling is not None:
            scaling_listens(self.scaling, self.wire)
            self.recorder.wishes = self.scaling.wishes
            self.scaling.start()
        for pool in scenario.pools:
            for number in range(pool.replicas):
                self.fleet.start(pool, number, warm=scenario.warm)
        if scenario.full_wire or scenario.faults:
            every(SNAPSHOT_S, self.fleet.tell_all, SNAPSHOT_S)
        every(1.0, self.recorder.look, PROLOGUE_S)
        if scenario.moves is not None:
            self._next_move(iter(scenario.moves()))
        schedule(self)

    def _next_call(self, calls: Iterator[Call]) -> None:
        call = next(calls, None)
        if call is not None and call.at_s < self.scenario.for_s:
            self.agenda.at(max(self.agenda.now_s, PROLOGUE_S + call.at_s), self._begin, call, calls)

    def _next_move(self, moves: Iterator[Move]) -> None:
        move = next(moves, None)
        if move is not None:
            at_s = PROLOGUE_S + move.at_s
            self.agenda.at(max(self.agenda.now_s, at_s - AHEAD_S), self._register, move, moves)

    def _register(self, move: Move, moves: Iterator[Move]) -> None:
        self.registry.register(move.adapter)
        self.agenda.at(max(self.agenda.now_s, PROLOGUE_S + move.at_s), self.registry.leave, move.previous)
        self._next_move(moves)

    # -- requests --------------------------------------------------------------------------------------

    def _begin(self, call: Call, calls: Iterator[Call]) -> None:
        self._next_call(calls)
        record = self.book.record(call.adapter)
        at = self.begun % len(self.gateways)
        request = Request(
            number=self.begun, gateway=at, call=call, began_s=self.agenda.now_s, record=record,
            tokens=call.prompt_tokens + call.max_tokens, pool_ids=(record.pool_id,),
            merged_pool_ids=self.fleet.merged_pools(record), pool_id=record.pool_id,
        )  # fmt: skip
        self.begun += 1
        self.gateways[at].begin(request)
        self._activities[at].began(request)

    def _on_first(self, attempt: Attempt) -> None:
        request, at_s = attempt.request, self.agenda.now_s + self._relay_s
        if request.attempt is attempt and request.first_s is None:
            self._activities[request.gateway].first_token(request, at_s - request.began_s)
        self.gateways[request.gateway].on_first(attempt, at_s)

    def _on_ended(self, attempt: Attempt) -> None:
        self.agenda.after(self._relay_s, self.gateways[attempt.request.gateway].on_ended, attempt)

    def _on_refused(self, attempt: Attempt, refusal: Refusal) -> None:
        self.agenda.after(
            self.scenario.timing.bus_s, self.gateways[attempt.request.gateway].on_refused, attempt, refusal
        )

    def _on_over(self, request: Request) -> None:
        self.over += 1
        self._activities[request.gateway].ended(request)
        self.recorder.on_over(request)

    def _tell_activity(self, gateway: Gateway, activity: Activity) -> None:
        message = activity.message(gateway.live, self.agenda.now_s)
        if message is not None:
            self.wire.tell(GATEWAY_ACTIVITY, message)
