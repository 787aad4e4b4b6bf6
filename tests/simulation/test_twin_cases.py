"""Cases of scale and routing, in the twin: what the cores decide together over minutes of traffic."""

from __future__ import annotations

import msgspec

from loadtest.twin.figures import Figures, figures
from loadtest.twin.scenario import Fault, OddReplica, PoolShape, Scaling, Scenario
from loadtest.twin.sequence import BatchShape
from loadtest.twin.twin import Twin
from loadtest.workloads.call import Call
from loadtest.workloads.calls import calls
from loadtest.workloads.shape import Fixed, Lengths, Surge, TrafficShape
from services.autoscaler.core.policy import ScalePolicy
from services.gateway.core.routing import RoutingPolicy
from shared.hashing import rank
from tests.simulation.twin_fleets import ADAPTER_BYTES, scenario, traffic

BRIEF = Lengths(prompt=Fixed(tokens=100), output=Fixed(tokens=20))


def test_c66_affinity_loads_far_less_than_spreading_does() -> None:
    shape = TrafficShape(customers=2_000, rate_per_s=12.0, for_s=50.0, lengths=BRIEF)
    pool = PoolShape(replicas=6, slots=60, ram_bytes=2_000 * ADAPTER_BYTES)
    found: dict[str, Figures] = {}
    for strategy in ("random", "least_loaded", "affinity"):
        policy = RoutingPolicy(strategy=strategy)
        found[strategy] = figures(Twin(scenario(shape, pool, routing=policy, warm_up_s=15.0)).run())
    loads = {strategy: each.loads_per_1000_requests for strategy, each in found.items()}
    assert loads["affinity"] < 0.6 * min(loads["random"], loads["least_loaded"]), loads
    assert found["affinity"].gpu_hit > found["random"].gpu_hit + 0.1
    assert all(not each.failed for each in found.values())


def test_c67_an_adapter_that_was_idle_for_a_minute_is_asked_for_where_it_is_resident() -> None:
    others = list(calls(TrafficShape(customers=40, rate_per_s=3.0, for_s=70.0, lengths=BRIEF, seed=4)))
    own = [_call(at_s, adapter=50) for at_s in (1.0, 1.5, 64.0, 66.0)]
    twin = Twin(_fixed([*(each for each in others if each.adapter != 50), *own], customers=60, for_s=70.0))
    mine = [each for each in twin.run().requests if each.adapter == 50]
    assert len({each.replica for each in mine}) == 1, mine
    assert [each.tier for each in mine[1:]] == ["gpu"] * 3


def test_c68_stream_and_non_stream_go_to_the_same_owner() -> None:
    asked = [_call(1.0 + 0.4 * at, adapter=at % 5, stream=at % 10 < 5) for at in range(100)]
    requests = Twin(_fixed(asked, customers=5, for_s=45.0)).run().requests
    for adapter in range(5):
        assert len({each.replica for each in requests if each.adapter == adapter}) == 1


def test_c34_two_then_four_then_one_replica_under_load_and_no_request_is_lost() -> None:
    names = [f"replica-{number:02d}" for number in range(4)]
    joins = [Fault(kind="join", at_s=15.0 + number, number=number) for number in (2, 3)]
    leaves = [Fault(kind="leave", at_s=40.0 + 3 * at, replica=name) for at, name in enumerate(names[:3])]
    shape = traffic(customers=40, rate_per_s=3.0, for_s=75.0, lengths=BRIEF)
    twin = Twin(scenario(shape, PoolShape(replicas=2, slots=30), faults=(*joins, *leaves), check_every=50))
    owners: dict[float, dict[str, set[str]]] = {}
    for at_s in (14.0, 36.0, 72.0):
        twin.agenda.at(at_s, lambda at_s=at_s: owners.__setitem__(at_s, _owners(twin)))
    outcome = twin.run()
    assert outcome.broken == ()
    assert {each.outcome for each in outcome.requests} == {"ok"}
    for at_s, members in ((14.0, names[:2]), (36.0, names), (72.0, names[3:])):
        for adapter_id, held_by in owners[at_s].items():
            assert held_by == set(rank(adapter_id, dict.fromkeys(members, 1.0))[:2]), f"{adapter_id} at {at_s} s"


def test_c70_placement_respects_each_replicas_slots_ranks_and_memory() -> None:
    odd = (
        OddReplica(number=1, slots=3, ram_bytes=40 * ADAPTER_BYTES, disk_bytes=90 * ADAPTER_BYTES),
        OddReplica(number=2, slots=20, ram_bytes=5 * ADAPTER_BYTES, disk_bytes=90 * ADAPTER_BYTES),
        OddReplica(number=3, slots=20, ram_bytes=40 * ADAPTER_BYTES, disk_bytes=9 * ADAPTER_BYTES),
        OddReplica(number=4, slots=20, ram_bytes=1 << 40, disk_bytes=1 << 40, rank_limit=8),
    )
    pool = PoolShape(replicas=5, slots=20, odd=odd)
    twin = Twin(scenario(traffic(customers=80, for_s=20.0, lengths=BRIEF), pool, check_every=20))
    outcome = twin.run()
    assert outcome.broken == ()
    tiers = {name: [each.tier for each in _assigned(twin, name).values()] for name in _names(twin)}
    assert 0 < tiers["replica-01"].count("gpu") <= 3
    assert 0 < len(tiers["replica-02"]) - tiers["replica-02"].count("disk") <= 5
    assert 0 < len(tiers["replica-03"]) <= 9
    assert tiers["replica-04"] == [], "its rank limit is below its pool's"
    assert "replica-04" not in {each.replica for each in outcome.requests}


def test_c73_replicas_that_are_still_starting_count_and_no_cascade_of_scale_ups_follows() -> None:
    start_s = 120.0
    shape = traffic(customers=40, rate_per_s=2.0, for_s=250.0, surges=(Surge(at_s=40.0, for_s=210.0, factor=3.0),))
    shape = msgspec.structs.replace(shape, lengths=Lengths(prompt=Fixed(tokens=100), output=Fixed(tokens=60)))
    pool = PoolShape(replicas=2, batch=BatchShape(max_rows=8))
    policy = ScalePolicy(min_replicas=2, max_replicas=30)
    outcome = Twin(scenario(shape, pool, scaling=Scaling(pools=(pool,), policy=policy, start_s=start_s))).run()
    wishes = [(second.at_s, second.wishes.get("base-r16", 2)) for second in outcome.seconds]
    enough = 5
    """6 requests/s of 60 tokens and about 3.2 s need 19 rows, at 80 % of 8 rows each."""
    raised_at_s = next(at_s for at_s, wish in wishes if wish > 2)
    meanwhile = [wish for at_s, wish in wishes if at_s <= raised_at_s + start_s]
    assert max(meanwhile) <= enough, wishes
    assert max(wish for _, wish in wishes) <= enough + 1, wishes


def _call(at_s: float, adapter: int, *, stream: bool = True) -> Call:
    return Call(at_s, adapter, adapter, 100, 20, 20, stream)


def _fixed(asked: list[Call], customers: int, for_s: float) -> Scenario:
    ordered = sorted(asked, key=lambda call: call.at_s)
    return Scenario(
        calls=lambda: ordered, customers=customers, for_s=for_s, pools=(PoolShape(replicas=4, slots=30),)
    )  # fmt: skip


def _names(twin: Twin) -> list[str]:
    return [replica.body.replica_id for replica in twin.fleet]


def _assigned(twin: Twin, name: str):  # type: ignore[no-untyped-def]
    replica = twin.fleet.living(name)
    assert replica is not None
    return replica.convergence.assignment.wanted()


def _owners(twin: Twin) -> dict[str, set[str]]:
    """Who is assigned each adapter, of those that do not drain."""
    found: dict[str, set[str]] = {record.adapter_id: set() for record in twin.registry.records.values()}
    for replica in twin.fleet:
        for key in () if replica.draining else replica.convergence.assignment.wanted():
            found[key.adapter_id].add(replica.body.replica_id)
    return found
