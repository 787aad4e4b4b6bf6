"""`make bench-routing`: how long a gateway takes to choose a replica, into reports/routing_speed.json.

200 replicas report every second and 10,000 adapters are asked for by Zipf's law, none of which was asked for before.
What was chosen is sent, runs and ends, so that loads, residency and the bound are those of a busy fleet, above the
utilisation at which the bound begins. Time is virtual but for the decisions: each is timed by itself, in processor
time of its thread. The whole is replayed several times, to the last bit alike, and each decision counts with its least
time: what others on the machine do at one moment is not part of it, while all that it costs every time is. `single`
is one replay as it was, `wall` the same on the clock on the wall.

Before the first decision the adapters are ranked that the gateway knows of, as it does before it says that it is
ready. An `unprepared` one ranks each when it is asked for first. `after_leaving` is the time after a replica left,
while all are ranked anew, tick by tick.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from loadtest.report import Figure, table, write_report
from loadtest.routing_load import POOL, Plan, RoutingLoad
from services.gateway.core.fleet import AHEAD_AT_ONCE
from services.gateway.core.question import STRATEGIES, Choice, Question, RoutingPolicy
from services.gateway.core.routing import route
from shared.messages.identity import AdapterKey

TARGET = "<= 50"
TICK_S = 0.1
REPLAYS, FEW_REPLAYS = 5, 3
LEAVES_AT_S, WATCHED_S = 1.0, 5.0
"""When a replica leaves, and how long decisions are watched from then on."""


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One decision. `first`: nobody had asked for the adapter before."""

    at_s: float
    took_us: float
    wall_us: float
    rule: str
    first: bool


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m loadtest.routing_bench")
    words.add_argument("--decisions", type=int, default=Plan().decisions)
    plan = Plan(decisions=words.parse_args().decisions)
    replays = [list(measure(plan, RoutingPolicy())) for _ in range(REPLAYS)]
    live = _least(replays)
    single = min(replays, key=lambda timed: sum(each.wall_us for each in timed))
    figures = {
        "route.us_p99": _p99(live, target=TARGET),
        "route.us_p50": _figure(live, 0.5),
        "route.us_p999": _figure(live, 0.999),
        "route.single.us_p99": _p99(single),
        "route.wall.us_p99": Figure(value=_share([each.wall_us for each in single], 0.99), unit="us"),
        "route.asked_first.us_p99": _p99(each for each in live if each.first),
        **{f"route.rule_{rule}.us_p99": _p99(e for e in live if e.rule == rule) for rule in sorted(_rules(live))},
        **_unprepared(plan),
        **_after_leaving(plan),
    }
    for strategy in STRATEGIES[1:]:
        figures[f"route.{strategy}.us_p99"] = _p99(_several(plan, RoutingPolicy(strategy=strategy)))
    print(table(figures))
    print(f"written {write_report('routing_speed', figures, conditions=_conditions(plan, live))}")


def measure(
    plan: Plan, policy: RoutingPolicy, *, prepared: bool = True, leaves_at_s: float | None = None
) -> Iterator[Timed]:
    load, chance = RoutingLoad(plan), random.Random(plan.seed)
    asked = _asked(plan, load.fleet.expect if prepared else _ignore)
    load.fleet.rank_ahead(plan.adapters)
    now_s = tick_at_s = load.began_s
    known: set[AdapterKey] = set()
    for number, adapter in enumerate(asked):
        now_s += chance.expovariate(plan.rate)
        load.pass_time(now_s)
        if leaves_at_s is not None and now_s - load.began_s >= leaves_at_s:
            load.leave()
            leaves_at_s = None
        if now_s >= tick_at_s:
            tick_at_s += TICK_S
            load.fleet.rank_ahead(AHEAD_AT_ONCE)
        tokens, draw = chance.randint(200, 1_800), chance.random()
        question = Question(adapter=adapter, pool_ids=(POOL,), tokens=tokens, merged_pool_ids=(f"{POOL}-m{number}",))
        wall_ns, began_ns = time.perf_counter_ns(), time.thread_time_ns()
        choice = route(load.fleet, question, policy, now_s, draw)
        took_ns = time.thread_time_ns() - began_ns
        wall_ns = time.perf_counter_ns() - wall_ns
        assert isinstance(choice, Choice), choice.reason
        load.send(choice.replica_id, adapter, (f"q{number}", tokens), now_s)
        yield Timed(
            at_s=now_s - load.began_s, took_us=took_ns / 1000, wall_us=wall_ns / 1000, rule=choice.rule,
            first=adapter not in known,
        )  # fmt: skip
        known.add(adapter)


def _asked(plan: Plan, expect: Callable[[str, str], None]) -> list[AdapterKey]:
    """Whose requests come, in order."""
    adapters = [AdapterKey(adapter_id=f"customer-{number}", digest=f"{number:064x}") for number in range(plan.adapters)]
    for adapter in adapters:
        expect(POOL, adapter.adapter_id)
    shares = list(accumulate(1.0 / place for place in range(1, plan.adapters + 1)))
    return random.Random(plan.seed).choices(adapters, cum_weights=shares, k=plan.decisions)


def _ignore(pool_id: str, adapter_id: str) -> None:
    """Of a gateway that knows no alias beforehand."""


def _several(plan: Plan, policy: RoutingPolicy, **how: Any) -> list[Timed]:
    return _least([list(measure(plan, policy, **how)) for _ in range(FEW_REPLAYS)])


def _least(replays: Sequence[Sequence[Timed]]) -> list[Timed]:
    """Each decision's least time. They are the same decisions, or something is wrong."""
    assert len({tuple((each.at_s, each.rule) for each in timed) for timed in replays}) == 1, "replays differ"
    return [min(same, key=lambda each: each.took_us) for same in zip(*replays, strict=True)]


def _unprepared(plan: Plan) -> dict[str, Figure]:
    timed = _several(plan, RoutingPolicy(), prepared=False)
    first = [each for each in timed if each.first]
    return {"route.unprepared.us_p99": _p99(timed), "route.unprepared.asked_first.us_p50": _figure(first, 0.5)}


def _after_leaving(plan: Plan) -> dict[str, Figure]:
    few = msgspec.structs.replace(plan, decisions=min(plan.decisions, int((LEAVES_AT_S + WATCHED_S) * plan.rate)))
    timed = _several(few, RoutingPolicy(), leaves_at_s=LEAVES_AT_S)
    return {"route.after_leaving.us_p99": _p99(each for each in timed if each.at_s >= LEAVES_AT_S)}


def _p99(timed: Iterable[Timed], target: str | None = None) -> Figure:
    return Figure(value=_figure(timed, 0.99).value, unit="us", target=target)


def _figure(timed: Iterable[Timed], share: float) -> Figure:
    return Figure(value=_share([each.took_us for each in timed], share), unit="us")


def _share(values: Sequence[float], share: float) -> float | None:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def _rules(timed: Sequence[Timed]) -> Counter[str]:
    return Counter(each.rule for each in timed)


def _conditions(plan: Plan, live: Sequence[Timed]) -> dict[str, str]:
    shares = ", ".join(f"{rule} {count / len(live):.1%}" for rule, count in _rules(live).most_common())
    return {
        **{name: str(value) for name, value in msgspec.structs.asdict(plan).items()},
        "replays": f"{REPLAYS}, of what is only reported {FEW_REPLAYS}",
        "traffic": f"Zipf 1.0; {sum(each.first for each in live)} decisions are an adapter's first",
        "rules": shares,
    }


if __name__ == "__main__":
    main()
