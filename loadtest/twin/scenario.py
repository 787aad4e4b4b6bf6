"""What is to be simulated: a fleet, its timing, its traffic, its policies, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import Timing
from loadtest.workloads.call import Call, Move
from services.autoscaler.core.cost import CostPolicy
from services.autoscaler.core.merged import MergedPolicy
from services.autoscaler.core.policy import ScalePolicy
from services.gateway.core.routing import RoutingPolicy
from services.gateway.core.stream import StreamPolicy
from services.placement.core.tick import TickPolicy
from services.replica_worker.core.dispatch_view import DispatchPolicy
from shared.messages.desired import AdapterRecord

BASE_HASH = "ba5e" * 16
PROLOGUE_S = 2.5
"""Replicas are heard and get their adapters before the first call."""


class PoolShape(msgspec.Struct, frozen=True, kw_only=True):
    """One pool and its replicas, all alike but for `odd` ones: by their number, those of other slots and memories.

    Customers from `first_customer` on, `customers` of them (None: all), have their adapters here. With `merged`, a
    customer, the replicas have the first version of its adapter in their weights, and hold no other."""

    pool_id: str = "base-r16"
    replicas: int = 26
    slots: int = 250
    rank_limit: int = 16
    rank: int = 16
    """Of its adapters."""
    adapter_bytes: int = 80_000_000
    ram_bytes: int = 48_000_000_000
    disk_bytes: int = 200_000_000_000
    queue_limit: int = 256
    batch: BatchShape = BatchShape()
    first_customer: int = 0
    customers: int | None = None
    merged: int | None = None
    merged_step_share: float = 0.8
    """Of the time of a step with adapters in slots."""
    odd: tuple[OddReplica, ...] = ()


class OddReplica(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    slots: int
    ram_bytes: int
    disk_bytes: int
    weight: float = 1.0
    rank_limit: int | None = None


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a fleet that exists, since who owns what is drawn from names: those of the first pool's replicas by
    their number, and the records of adapters by theirs. Whoever is not named gets a name of the twin's own. `held` is
    what replicas begin with that begin warm, by adapter id the highest tier; without it that is what they are assigned.
    """

    replicas: tuple[str, ...] = ()
    adapters: tuple[AdapterRecord, ...] = ()
    held: Mapping[str, Mapping[str, str]] = {}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens to the fleet, wanted or not. `kind` begins at `at_s` and ends after `for_s`:

    "join" of the first pool's replica with this `number`; "leave" of one, which drains first and goes when it is
    empty; "death" of a replica, which a new process replaces after `for_s` (0: never); "pause" of one, which says and
    does nothing meanwhile; "slow_store", by `factor`; "lost_reports", "lost_residency" and "lost_assignments", each
    message with `chance`; "stale_reports", which come `factor` seconds late; "placement_pause", after which the paused
    one acts on what it knew; "second_placement", which claims the next epoch and acts beside the first, until that
    hears of it. `replica` "": whoever comes first in the alphabet.
    """

    kind: str
    at_s: float
    for_s: float = 0.0
    replica: str = ""
    number: int = 0
    """Of the replica that joins, in the first pool."""
    chance: float = 0.0
    factor: float = 1.0


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """The autoscaler acts on these pools of the scenario, and on merged ones if their policy says so. What it starts
    serves after `start_s`, with nothing in any tier."""

    pools: tuple[PoolShape, ...]
    policy: ScalePolicy = ScalePolicy()
    cost: CostPolicy = CostPolicy()
    merged: MergedPolicy = MergedPolicy()
    start_s: float = 120.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`calls` makes the workload anew for each run. Nothing before `warm_up_s` is counted in figures."""

    calls: Callable[[], Iterable[Call]]
    moves: Callable[[], Iterable[Move]] | None = None
    customers: int
    for_s: float
    warm_up_s: float = 0.0
    seed: int = 1
    pools: tuple[PoolShape, ...] = (PoolShape(),)
    cast: Cast = Cast()
    gateways: int = 1
    timing: Timing = Timing()
    routing: RoutingPolicy = RoutingPolicy()
    streams: StreamPolicy = StreamPolicy()
    dispatch: DispatchPolicy = DispatchPolicy()
    placement: TickPolicy = TickPolicy()
    scaling: Scaling | None = None
    faults: tuple[Fault, ...] = ()
    ttft_objective_s: float = 1.0
    sheds: bool = False
    """Gateways ask for first tokens within the objective, so that replicas refuse what would wait longer for a row."""
    usd_per_replica_hour: float = 2.5
    warm: bool = True
    """Replicas begin with what they are first assigned."""
    full_wire: bool = False
    """Every message is encoded and decoded, and snapshots are sent as often as in life. Otherwise snapshots are left
    out while none is lost, because they would say nothing new."""
    check_every: int = 0
    """Invariants are looked at after every so many events; 0: only at the end."""
    tail_s: float = 600.0
    """How long the fleet may work on after the last call."""
