"""Figures of a run that is written down by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loadtest.twin.__main__ import main
from loadtest.twin.figures import figures, nearest, p95_over_time
from loadtest.twin.outcome import Answered, Outcome, ReplicaSecond, Second


def _answered(arrived_s: float, ttft_s: float | None, tenant: int = 1, tier: str = "gpu", **changes: Any) -> Answered:
    outcome = "ok" if ttft_s is not None else "deadline"
    row = Answered(arrived_s, tenant, tenant, ttft_s, arrived_s + 1.0, outcome, tier, "a", "resident", 10, 1)
    return msgspec.structs.replace(row, **changes)


def _second(at_s: float, tokens: tuple[int, int], running: tuple[int, int] = (8, 8), loads: int = 0) -> Second:
    replicas = tuple(
        ReplicaSecond(name, held, rows, 0, loads, loads // 2, 10, False)
        for name, held, rows in zip("ab", tokens, running, strict=True)
    )
    return Second(at_s, replicas, 0, {})


def _outcome(requests: tuple[Answered, ...], seconds: tuple[Second, ...] = ()) -> Outcome:
    return Outcome(
        requests=requests, seconds=seconds, owners=(), broken=(), for_s=100.0, warm_up_s=10.0, simulated_s=100.0,
        wall_s=0.5, events=1, usd_per_replica_hour=2.5, objective_s=1.0,
    )  # fmt: skip


def test_what_came_before_the_warm_up_was_over_does_not_count() -> None:
    found = figures(_outcome((_answered(9.0, 50.0), _answered(11.0, 0.2), _answered(12.0, None, tier="ram"))))
    assert found.requests == 2
    assert found.ttft is not None
    assert found.ttft.p99_s == 0.2
    assert found.failed == {"deadline": 1}
    assert found.in_objective == 0.5, "who got no token was not in the objective"
    assert (found.gpu_hit, found.gpu_or_ram_hit) == (0.5, 1.0)
    assert found.speed_x == pytest.approx(200.0)


def test_only_a_customer_with_enough_requests_has_a_p95_of_its_own() -> None:
    frequent = tuple(_answered(20.0 + at, 0.1 * (at + 1), tenant=1) for at in range(20))
    rare = tuple(_answered(20.0, 3.0, tenant=2 + at) for at in range(3))
    found = figures(_outcome((*frequent, *rare)))
    assert found.customers_p95_max_s == pytest.approx(1.9)
    assert found.customers_late == 1
    assert found.customers_tail_p95_s == 3.0


def test_balance_is_looked_at_above_seventy_percent_of_the_rows_only() -> None:
    idle = _second(20.0, (400, 100), running=(1, 1))
    busy = _second(21.0, (300, 100), loads=6)
    found = figures(_outcome((_answered(20.0, 0.2),), (idle, busy)))
    assert found.max_over_mean == 1.5
    assert found.busy_share == 0.5
    assert found.utilisation == pytest.approx(0.45)
    assert found.loads_per_1000_requests == 12_000.0
    assert found.loads_per_min_replica == pytest.approx(12 / (4 / 60))
    assert found.replica_hours == pytest.approx(4 / 3600)
    assert found.usd_per_million_tokens == pytest.approx(4 / 3600 * 2.5 / 10 * 1e6)


def test_a_process_that_began_anew_counts_its_loads_from_zero() -> None:
    seconds = tuple(_second(20.0 + at, (1, 1), loads=loads) for at, loads in enumerate((10, 14, 2)))
    assert figures(_outcome((_answered(20.0, 0.2),), seconds)).loads_per_1000_requests == 2 * (4 + 2) * 1000.0


def test_one_customers_p95_in_windows() -> None:
    requests = (_answered(1.0, 0.5), _answered(2.0, 2.0), _answered(7.0, 0.1), _answered(7.5, 9.0, tenant=2))
    assert p95_over_time(_outcome(requests), tenant=1) == [(5.0, 2.0, 2), (10.0, 0.1, 1)]
    assert nearest([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0


def test_the_command_prints_the_figures_of_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--replicas", "2", "--rate", "2", "--adapters", "20", "--minutes", "0.5", "--warm-up", "0.1", "--json"]
    assert main(["--preset", "fleet-b", *small]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["failed"] == {}
    assert found["ttft"]["p95_s"] < 0.2
    assert main([*small[:-1], "--strategy", "random"]) == 0
    assert "first token" in capsys.readouterr().out


def test_a_customer_who_often_gets_no_token_is_late_however_fast_the_others_come() -> None:
    rows = [_answered(20.0 + at, 0.1) for at in range(18)] + [_answered(50.0 + at, None) for at in range(2)]
    found = figures(_outcome((*rows, _answered(60.0, None, tenant=2))))
    assert found.customers_late == 1
    assert (found.customers_p95_max_s, found.customers_tail_p95_s) == (float("inf"), float("inf"))
    assert found.ttft is not None
    assert found.ttft.count == 18
