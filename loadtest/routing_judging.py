"""What the runs of the routing report come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadtest.capacity.judging import balance, counted_seconds, point, wait_s
from loadtest.measures import quantile
from loadtest.plots.routing import TIERS, RoutingRun
from loadtest.report import Figure
from loadtest.twin.outcome import Outcome, Second
from shared.hashing import top

_CDF_POINTS = 200
WINDOW_S = 5.0


def run_of(strategy: str, adapters: int, outcome: Outcome) -> RoutingRun:
    seconds = counted_seconds(outcome)
    counted = [each for each in outcome.requests if each.arrived_s >= outcome.warm_up_s]
    replicas = len(seconds[-1].replicas)
    found = point(outcome, replicas)
    per_min = 60 / (seconds[-1].at_s - seconds[0].at_s) / replicas
    return RoutingRun(
        strategy=strategy,
        adapters=adapters,
        ttft_p50_s=found.ttft_p50_s,
        ttft_p95_s=found.ttft_p95_s,
        ttft_p99_s=found.ttft_p99_s,
        tiers=tuple(sum(each.tier == tier for each in counted) / len(counted) for tier in TIERS),  # type: ignore[arg-type]
        loads_per_1000=found.loads_per_1000,
        loads_per_min=_grown(seconds, "loads") * per_min,
        evictions_per_min=_grown(seconds, "evictions") * per_min,
        max_over_mean=found.max_over_mean,
        cdf=cdf([wait_s(each) for each in counted]),
    )


def cdf(waits_s: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """(seconds, share of requests that waited no longer), some hundred points of it."""
    ordered = sorted(waits_s)
    places = sorted({max(1, round(len(ordered) * step / _CDF_POINTS)) for step in range(_CDF_POINTS + 1)})
    return tuple((ordered[place - 1], place / len(ordered)) for place in places)


def comparison(runs: Sequence[RoutingRun]) -> dict[str, Figure]:
    """Every run's figures, and how many times affinity is better than chance."""
    by_name = {(run.strategy, run.adapters): run for run in runs}
    figures = {name: figure for run in runs for name, figure in _figures_of(run).items()}
    for adapters in sorted({run.adapters for run in runs}):
        ours, chance = by_name["affinity_bounded", adapters], by_name["random", adapters]
        figures[f"affinity_vs_random.ttft_p95_{adapters}"] = _times(chance.ttft_p95_s, ours.ttft_p95_s)
        figures[f"affinity_vs_random.loads_per_1000_{adapters}"] = _times(chance.loads_per_1000, ours.loads_per_1000)
    return figures


def fleet_figures(outcome: Outcome) -> dict[str, Figure]:
    """Fleet A with what is aimed at."""
    replicas = len(outcome.seconds[-1].replicas)
    found = point(outcome, replicas)
    ratios = sorted(balance(outcome))
    cost = replicas * outcome.usd_per_replica_hour / 3600 * (outcome.for_s - outcome.warm_up_s)
    tokens = sum(each.tokens for each in outcome.requests if each.arrived_s >= outcome.warm_up_s)
    return {
        "fleet_a.ttft_p50_s": Figure(value=_r(found.ttft_p50_s), unit="s"),
        "fleet_a.ttft_p95_s": Figure(value=_r(found.ttft_p95_s), unit="s", target="< 0.5"),
        "fleet_a.ttft_p99_s": Figure(value=_r(found.ttft_p99_s), unit="s"),
        "fleet_a.worst_customer_p95_s": Figure(value=_r(found.worst_customer_p95_s), unit="s", target="< 1"),
        "fleet_a.gpu_hit": Figure(value=_r(found.gpu_hit), unit="", target=">= 0.95"),
        "fleet_a.gpu_or_ram_hit": Figure(value=_r(found.gpu_or_ram_hit), unit="", target=">= 0.999"),
        "fleet_a.max_over_mean": Figure(value=_r(quantile(ratios, 0.95)), unit="", target="<= 1.25"),
        "fleet_a.max_over_mean_steady": Figure(value=_r(quantile(ratios, 0.5)), unit="", target="<= 1.15"),
        "fleet_a.loads_per_1000": Figure(value=_r(found.loads_per_1000), unit=""),
        "fleet_a.failed_share": Figure(value=_r(found.failed_share), unit="", target="<= 0"),
        "fleet_a.usd_per_million_tokens": Figure(value=_r(cost / tokens * 1e6), unit="USD"),
        "fleet_a.broken_invariants": Figure(value=len(outcome.broken), unit="", target="<= 0"),
        "twin.speed_x": Figure(value=_r(outcome.simulated_s / outcome.wall_s), unit="", target=">= 100"),
    }


def rise_figures(outcome: Outcome, tenant: int, at_s: float) -> dict[str, Figure]:
    """A customer that rises at `at_s`."""
    soon, later = (owners_at(outcome, tenant, at_s + after_s) for after_s in (10.0, 60.0))
    return {
        "hot_customer.owners_after_10_s": Figure(value=soon, unit="", target=">= 4"),
        "hot_customer.owners_after_60_s": Figure(value=later, unit=""),
        "hot_customer.recovery_s": Figure(value=recovery_s(outcome, tenant, at_s), unit="s", target="<= 20"),
    }


def owners_at(outcome: Outcome, tenant: int, at_s: float) -> int:
    """How many owners the customer's first adapter has by then; two as long as nobody says otherwise."""
    counts = [owners for when_s, name, owners in outcome.owners if name == adapter_name(tenant) and when_s <= at_s]
    return counts[-1] if counts else 2


def adapter_name(number: int) -> str:
    """As the twin's book has it."""
    return f"adapter-{number:06d}"


def recovery_s(outcome: Outcome, tenant: int, at_s: float) -> float:
    """From `at_s` until the end of the last five seconds in which the customer's p95 was over the objective."""
    own = [each for each in outcome.requests if each.tenant == tenant and each.arrived_s >= at_s]
    windows: dict[int, list[float]] = {}
    for each in own:
        windows.setdefault(int((each.arrived_s - at_s) / WINDOW_S), []).append(wait_s(each))
    late = [number for number, waits in windows.items() if quantile(waits, 0.95) >= outcome.objective_s]
    return WINDOW_S * (1 + max(late)) if late else 0.0


def moved_share(adapters: int, replicas: int, owners: int = 2) -> float:
    """Of all placements, those that are elsewhere once one of so many replicas has left; the most of any replica's."""
    ids = [adapter_name(number) for number in range(adapters)]
    names = [f"replica-{number}" for number in range(replicas)]
    before = top(ids, dict.fromkeys(names, 1.0), owners)
    return max(_moved(before, top(ids, {name: 1.0 for name in names if name != gone}, owners)) for gone in names)


def _moved(before: Sequence[tuple[str, ...]], after: Sequence[tuple[str, ...]]) -> float:
    new = sum(len(set(now) - set(was)) for was, now in zip(before, after, strict=True))
    return new / sum(map(len, after))


def _figures_of(run: RoutingRun) -> Mapping[str, Figure]:
    name = f"{run.strategy}.{run.adapters}"
    gpu, ram, disk, remote = run.tiers
    seconds = {"ttft_p50_s": run.ttft_p50_s, "ttft_p95_s": run.ttft_p95_s, "ttft_p99_s": run.ttft_p99_s}
    plain = {
        "gpu_hit": gpu,
        "ram_hit": ram,
        "disk_hit": disk,
        "remote": remote,
        "loads_per_1000": run.loads_per_1000,
        "loads_per_min": run.loads_per_min,
        "evictions_per_min": run.evictions_per_min,
        "max_over_mean": run.max_over_mean,
    }
    return {
        **{f"{name}.{key}": Figure(value=_r(value), unit="s") for key, value in seconds.items()},
        **{f"{name}.{key}": Figure(value=_r(value), unit="") for key, value in plain.items()},
    }


def _grown(seconds: Sequence[Second], column: str) -> int:
    first, last = (sum(getattr(replica, column) for replica in second.replicas) for second in (seconds[0], seconds[-1]))
    return int(last - first)


def _times(of: float, over: float) -> Figure:
    return Figure(value=_r(of / over) if over else None, unit="times")


def _r(value: float) -> float:
    """Four digits: more would be noise."""
    return float(f"{value:.4g}")
