"""What a run leaves behind: a row for each request, and figures of the fleet for each interval."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Answered(msgspec.Struct, frozen=True, gc=False):
    """One request; times since the workload began. `ttft_s` None: no token came. `tier` is where the adapter was found
    on arrival, "" if it never was asked for; `rule` is why its last replica was chosen."""

    arrived_s: float
    adapter: int
    tenant: int
    ttft_s: float | None
    ended_s: float
    outcome: str
    tier: str
    replica: str
    rule: str
    tokens: int
    attempts: int


class ReplicaSecond(msgspec.Struct, frozen=True, gc=False):
    """One replica as it was; `loads` and `evictions` since its process began."""

    replica: str
    tokens_in_flight: int
    running: int
    waiting: int
    loads: int
    evictions: int
    max_rows: int
    draining: bool


class Second(msgspec.Struct, frozen=True, gc=False):
    """The fleet at one moment. `wishes` by pool."""

    at_s: float
    replicas: tuple[ReplicaSecond, ...]
    starting: int
    wishes: Mapping[str, int]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`broken` are invariants that did not hold, `owners` what became of owner counts above the usual: when, of which
    adapter, and how many."""

    requests: tuple[Answered, ...]
    seconds: tuple[Second, ...]
    owners: tuple[tuple[float, str, int], ...]
    broken: tuple[str, ...]
    for_s: float
    warm_up_s: float
    simulated_s: float
    wall_s: float
    events: int
    usd_per_replica_hour: float
    objective_s: float
    reasons: tuple[tuple[float, str], ...] = ()
