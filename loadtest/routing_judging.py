"""What the runs of the routing report come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadtest.capacity.judging import point_of
from loadtest.plots.routing import TIERS, RoutingRun
from loadtest.report import Figure
from loadtest.twin.figures import figures, p95_over_time
from loadtest.twin.outcome import Outcome
from shared.hashing import top

_CDF_POINTS = 200


def run_of(strategy: str, adapters: int, outcome: Outcome) -> RoutingRun:
    found = figures(outcome)
    counted = [each for each in outcome.requests if each.arrived_s >= outcome.warm_up_s]
    made = point_of(found, len(outcome.seconds[-1].replicas), outcome)
    return RoutingRun(
        strategy=strategy,
        adapters=adapters,
        ttft_p50_s=made.ttft_p50_s,
        ttft_p95_s=made.ttft_p95_s,
        ttft_p99_s=made.ttft_p99_s,
        tiers=tuple(sum(each.tier == tier for each in counted) / len(counted) for tier in TIERS),  # type: ignore[arg-type]
        loads_per_1000=found.loads_per_1000_requests,
        loads_per_min=found.loads_per_min_replica,
        evictions_per_min=found.evictions_per_min_replica,
        max_over_mean=made.max_over_mean,
        cdf=cdf([each.ttft_s for each in counted if each.ttft_s is not None]),
    )


def cdf(waits_s: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """(seconds, share of requests that waited no longer), some hundred points of it."""
    ordered = sorted(waits_s)
    places = sorted({max(1, round(len(ordered) * step / _CDF_POINTS)) for step in range(_CDF_POINTS + 1)})
    return tuple((ordered[place - 1], place / len(ordered)) for place in places)


def comparison(runs: Sequence[RoutingRun]) -> dict[str, Figure]:
    """Every run's figures, and how many times affinity is better than chance."""
    by_name = {(run.strategy, run.adapters): run for run in runs}
    named = {name: figure for run in runs for name, figure in _figures_of(run).items()}
    for adapters in sorted({run.adapters for run in runs}):
        ours, chance = by_name["affinity_bounded", adapters], by_name["random", adapters]
        named[f"affinity_vs_random.ttft_p95_{adapters}"] = _times(chance.ttft_p95_s, ours.ttft_p95_s)
        named[f"affinity_vs_random.loads_per_1000_{adapters}"] = _times(chance.loads_per_1000, ours.loads_per_1000)
    return named


def fleet_figures(outcome: Outcome) -> dict[str, Figure]:
    """Fleet A with what is aimed at."""
    found = figures(outcome)
    made = point_of(found, len(outcome.seconds[-1].replicas), outcome)
    named = {
        "fleet_a.ttft_p50_s": (made.ttft_p50_s, "s", None),
        "fleet_a.ttft_p95_s": (made.ttft_p95_s, "s", "< 0.5"),
        "fleet_a.ttft_p99_s": (made.ttft_p99_s, "s", None),
        "fleet_a.worst_customer_p95_s": (made.worst_customer_p95_s, "s", "< 1"),
        "fleet_a.gpu_hit": (found.gpu_hit, "", ">= 0.95"),
        "fleet_a.gpu_or_ram_hit": (found.gpu_or_ram_hit, "", ">= 0.999"),
        "fleet_a.max_over_mean": (found.max_over_mean_p95, "", "<= 1.25"),
        "fleet_a.max_over_mean_steady": (found.max_over_mean, "", "<= 1.15"),
        "fleet_a.busy_share": (found.busy_share, "", None),
        "fleet_a.loads_per_1000": (found.loads_per_1000_requests, "", None),
        "fleet_a.failed_share": (made.failed_share, "", "<= 0"),
        "fleet_a.usd_per_million_tokens": (found.usd_per_million_tokens, "USD", None),
        "fleet_a.broken_invariants": (len(outcome.broken), "", "<= 0"),
        "twin.speed_x": (found.speed_x, "", ">= 100"),
    }
    return {name: Figure(value=_r(value), unit=unit, target=target) for name, (value, unit, target) in named.items()}


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
    windows = p95_over_time(outcome, tenant)
    late = [end_s for end_s, p95_s, _ in windows if end_s > at_s and p95_s >= outcome.objective_s]
    return late[-1] - at_s if late else 0.0


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


def _times(of: float, over: float) -> Figure:
    return Figure(value=_r(of / over) if over else None, unit="times")


def _r(value: float | None) -> float | None:
    """Four digits: more would be noise."""
    return None if value is None else float(f"{value:.4g}")
