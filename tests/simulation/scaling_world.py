"""A crude fluid fleet for the autoscaler's core: rows that fill and empty, a queue before them, replicas that take
their time to start, an actuator that always obeys. One second a step, virtual time, seeded."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import msgspec

from services.autoscaler.core.decide import decide
from services.autoscaler.core.demand import DemandPolicy, Sums, Tally, demand_of, heard
from services.autoscaler.core.load import PoolLoad, ReplicaLoad
from services.autoscaler.core.memory import PoolDecision, PoolMemory
from services.autoscaler.core.policy import ScalePolicy

Rate = Callable[[float], float]
"""Requests/s at a time."""

REQUEST_TOKENS = 250.0
ROWS = 32
STEP_S = 0.05
CAPACITY = ROWS / STEP_S
"""Tokens/s of a replica: fleet A's 640."""
_STAY_S = REQUEST_TOKENS * STEP_S
OBJECTIVE_S = 1.0
_PREFILL_S = 0.15


class Fluid(msgspec.Struct):
    """One replica. `running` requests are a real number."""

    ready_at_s: float
    running: float = 0.0
    draining: bool = False
    silent: bool = False
    last: ReplicaLoad | None = None


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    replicas: int = 1
    start_s: float = 30.0
    policy: ScalePolicy = ScalePolicy()
    seed: int = 1
    noise: float = 1.0
    gateways: bool = True
    begin_s: float = 0.0


class Second(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    arrived: float
    late: float
    wait_s: float
    serving: int
    there: int
    decision: PoolDecision


class World:
    """`seconds` has what happened, `cut_off` the most that ran on a replica that was removed.

    `breaks_starts` keeps replicas that are started from now on from getting ready, `hides_starts` keeps those that
    are not ready from being named by the actuator and from reporting, `deaf` drops every message.
    """

    def __init__(self, rate: Rate, setup: Setup | None = None) -> None:
        setup = setup or Setup()
        self.rate = rate
        self.start_s = setup.start_s
        self.policy = setup.policy
        self.gateways = setup.gateways
        self.replicas = {f"r{number:03}": Fluid(ready_at_s=setup.begin_s) for number in range(setup.replicas)}
        self.seconds: list[Second] = []
        self.memory = PoolMemory()
        self.now_s = setup.begin_s
        self.breaks_starts = self.hides_starts = self.deaf = False
        self.started = 0
        self.cut_off = 0.0
        self._random = random.Random(setup.seed)
        self._noise = setup.noise
        self._waiting = 0.0
        self._tally: Tally | None = None
        self._windows = DemandPolicy()
        self._next = setup.replicas
        self._pool = "pool"

    def run(self, seconds: float) -> World:
        for _ in range(int(seconds)):
            self._step()
        return self

    def _step(self) -> None:
        arrived = self._arrivals()
        done_tokens = self._finish()
        serving = [one for one in self.replicas.values() if one.ready_at_s <= self.now_s and not one.draining]
        admitted = self._admit(arrived, serving)
        wait_s = self._wait_s(len(serving))
        late = wait_s > OBJECTIVE_S
        self._tell(arrived, admitted, admitted if late else 0.0, done_tokens)
        decision = decide(self.memory, self._load(len(serving)), self.now_s, self.policy)
        self.memory = decision.memory
        self._carry_out(decision)
        self.seconds.append(
            Second(
                at_s=self.now_s,
                arrived=arrived,
                late=arrived if late else 0.0,
                wait_s=wait_s,
                serving=len(serving),
                there=len(self.replicas),
                decision=decision,
            )
        )
        self.now_s += 1.0

    def _finish(self) -> float:
        """Tokens of this second: as many as belong to the requests that end. They free their rows."""
        before = sum(replica.running for replica in self.replicas.values())
        for replica in self.replicas.values():
            replica.running *= math.exp(-1.0 / _STAY_S)
        return (before - sum(replica.running for replica in self.replicas.values())) * REQUEST_TOKENS

    def _admit(self, arrived: float, serving: list[Fluid]) -> float:
        free = sum(ROWS - replica.running for replica in serving)
        self._waiting += arrived
        admitted = min(self._waiting, free)
        self._waiting -= admitted
        for replica in serving:
            replica.running += admitted * (ROWS - replica.running) / free if free else 0.0
        return admitted

    def _wait_s(self, serving: int) -> float:
        if not self._waiting:
            return _PREFILL_S
        return _PREFILL_S + self._waiting / (serving * ROWS / _STAY_S) if serving else math.inf

    def _tell(self, arrived: float, admitted: float, late: float, tokens: float) -> None:
        if self.gateways and not self.deaf:
            said = Sums(
                requests=arrived, answered=admitted, late=late, tokens=tokens, messages=1.0, squares=arrived**2
            )  # fmt: skip
            self._tally = heard(self._tally, said, 1.0, self.now_s, self._windows)

    def _arrivals(self) -> float:
        """About Poisson for whole requests, wider with `noise` above 1."""
        mean = self.rate(self.now_s)
        return max(0.0, self._random.gauss(mean, self._noise * math.sqrt(mean))) if mean > 0 else 0.0

    def _load(self, serving: int) -> PoolLoad:
        for name, replica in self.replicas.items():
            hidden = self.hides_starts and replica.ready_at_s > self.now_s
            if not (replica.silent or self.deaf or hidden):
                replica.last = self._report(name, replica, serving)
        hides = self.hides_starts
        return PoolLoad(
            pool_id=self._pool,
            replicas={name: replica.last for name, replica in self.replicas.items() if replica.last},
            existing=frozenset(
                name for name, replica in self.replicas.items() if replica.ready_at_s <= self.now_s or not hides
            ),
            demand=demand_of(self._tally, self.now_s, self._windows),
        )

    def _report(self, name: str, replica: Fluid, serving: int) -> ReplicaLoad:
        ready = replica.ready_at_s <= self.now_s
        waits = ready and not replica.draining and serving
        queue = self._waiting / serving if waits else 0.0
        return ReplicaLoad(
            replica_id=name,
            heard_at_s=self.now_s,
            ready=ready,
            draining=replica.draining,
            running=round(replica.running),
            queue_depth=round(queue),
            tokens_in_flight=round((replica.running + queue) * 1_000),
            queued_tokens=round(queue * 1_000),
            tokens_per_s=replica.running / STEP_S,
            capacity_tokens_per_s=CAPACITY if ready else 0.0,
            slots=250,
            slots_busy=round(replica.running * 0.8),
            max_rows=ROWS,
        )

    def _carry_out(self, decision: PoolDecision) -> None:
        for name in decision.remove:
            self.cut_off = max(self.cut_off, self.replicas.pop(name).running)
        for name, replica in self.replicas.items():
            replica.draining = name in decision.drain
        hidden = sum(one.ready_at_s > self.now_s for one in self.replicas.values()) if self.hides_starts else 0
        while len(self.replicas) - hidden < decision.exist:
            ready_at_s = math.inf if self.breaks_starts else self.now_s + self.start_s
            self.replicas[f"r{self._next:03}"] = Fluid(ready_at_s=ready_at_s)
            self._next += 1
            self.started += 1


class Score(msgspec.Struct, frozen=True, kw_only=True):
    attained: float
    """Share of the seconds in objective."""
    attained_requests: float
    hours_over_oracle: float
    reversals: int
    most_reversals_an_hour: int
    replica_hours: float


def score(seconds: Sequence[Second], rate: Rate, utilisation: float) -> Score:
    replica_s = sum(second.there for second in seconds)
    turns = reversals(seconds)
    return Score(
        attained=sum(second.wait_s <= OBJECTIVE_S for second in seconds) / len(seconds),
        attained_requests=1.0 - sum(second.late for second in seconds) / sum(second.arrived for second in seconds),
        hours_over_oracle=replica_s / (60.0 * sum(oracle(rate, seconds[0].at_s, len(seconds), utilisation))),
        reversals=len(turns),
        most_reversals_an_hour=max((sum(t <= u < t + 3_600 for u in turns) for t in turns), default=0),
        replica_hours=replica_s / 3_600.0,
    )


def oracle(rate: Rate, begin_s: float, seconds: int, utilisation: float) -> list[int]:
    """Replicas for each minute, of one who knows what comes: as few as keep the utilisation."""
    per_replica = utilisation * CAPACITY / REQUEST_TOKENS
    return [
        max(1, math.ceil(sum(rate(begin_s + minute + s) for s in range(60)) / 60.0 / per_replica))
        for minute in range(0, seconds - seconds % 60, 60)
    ]


def reversals(seconds: Sequence[Second]) -> list[float]:
    """When the wish changed its direction."""
    turns: list[float] = []
    direction = 0
    for before, after in itertools.pairwise(seconds):
        change = after.decision.desired - before.decision.desired
        if change and direction and (change > 0) != (direction > 0):
            turns.append(after.at_s)
        direction = change or direction
    return turns


def day(peak: float, *, seed: int = 7, period_s: float = 86_400.0, bursts_per_hour: float = 1.0) -> Rate:
    """A day with its night, and bursts of 1.2 to 1.8 times the load that last two to ten minutes."""
    draw = random.Random(seed)
    bursts: list[tuple[float, float, float]] = []
    at_s = draw.expovariate(bursts_per_hour / 3_600.0)
    while at_s < period_s:
        bursts.append((at_s, draw.uniform(120.0, 600.0), draw.uniform(0.2, 0.8)))
        at_s += draw.expovariate(bursts_per_hour / 3_600.0)

    def rate(now_s: float) -> float:
        shape = 0.3 + 0.7 * (0.5 - 0.5 * math.cos(2.0 * math.pi * now_s / period_s)) ** 1.5
        extra = sum(height * _swell(now_s - begin_s, lasts_s) for begin_s, lasts_s, height in bursts)
        return peak * shape * (1.0 + extra)

    return rate


def _swell(since_s: float, lasts_s: float) -> float:
    """Up within 20 s, down within 20 s."""
    return max(0.0, min(1.0, since_s / 20.0, (lasts_s - since_s) / 20.0))
