"""From what was observed to a timing, and to the file that the twin reads."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest.calibration.hops import Hop
from loadtest.calibration.measuring import Probed, Run
from loadtest.calibration.reckoning import reckon
from loadtest.calibration.seen import Seen
from loadtest.calibration.text import lines
from loadtest.calibration.ways import FirstTokens
from loadtest.twin.__main__ import main
from loadtest.twin.measured import Measured, NoTiming, played_with, read_measured, write_measured
from loadtest.twin.presets import Size, fleet_a
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import MeasuredTable
from tests.unit.calibration.engines import CHUNK_TOKENS, KnownTimes, lone_of, seen_of

LINE_S, BESIDE_S = 0.0012, 0.003
TIMES = KnownTimes(beside_s=BESIDE_S)
HOPS_S = {"disk": 0.020, "ram": 0.010, "gpu": 0.030}
BATCH = BatchShape(max_rows=8, chunk_tokens=CHUNK_TOKENS, kv_tokens=9_999)


@pytest.fixture(scope="module")
def measured() -> Measured:
    return _measured([])


def _measured(from_ram: list[Seen]) -> Measured:
    seen = seen_of(TIMES, requests=300, rate_per_s=2.0)
    ttft_s = sum(each.ttft_s or 0.0 for each in seen) / len(seen)
    run = Run(
        alone=lone_of(TIMES), seen=seen, first_tokens=FirstTokens(count=300.0, sum_s=300.0 * (ttft_s - 0.003)),
        volleys=[_volley()] * 3, beside=[_beside()] * 10, from_ram=from_ram,
    )  # fmt: skip
    hops = [
        Hop(tier=tier, size_bytes=size, took_s=s + size / 1e8) for tier, s in HOPS_S.items() for size in (10, 10**6)
    ]
    return reckon([run], Probed(hops=hops, bus_s=0.0005, restart_s=3.0), BATCH, {"engine": "known"})


def _lone(at_s: float, held_up_s: float, replica: str, tokens: int = 1) -> Seen:
    """A short question to an idle replica, held up on its way."""
    first_s = at_s + held_up_s + TIMES.way_s + TIMES.step_s(1, [2]) + TIMES.relay_s
    return Seen(
        request_id=f"{replica} {at_s + held_up_s}", adapter=0, planned_s=at_s, sent_s=at_s, first_s=first_s,
        ended_s=first_s + (tokens - 1) * TIMES.step_s(1, []), outcome="ok", tier="gpu", replica=replica,
        prompt_tokens=2, tokens=tokens, attempts=1,
    )  # fmt: skip


def _volley() -> list[Seen]:
    return [_lone(0.0, 7 * LINE_S, f"replica-{at}") for at in range(8)]


def _beside() -> list[Seen]:
    return [_lone(0.0, 0.0, "replica-0", tokens=100), _lone(0.5, BESIDE_S, "replica-1")]


def test_what_requests_cost_each_other_is_found(measured: Measured) -> None:
    assert measured.timing.line_s == pytest.approx(LINE_S, rel=0.05)
    assert measured.timing.beside_s == pytest.approx(BESIDE_S, rel=0.1)


def test_everything_that_was_planted_is_found(measured: Measured) -> None:
    timing = measured.timing
    assert timing.steps.step_s(1, 0, 1) == pytest.approx(TIMES.step_s(1, []), rel=0.05)
    assert timing.steps.step_s(2, 100, 2) == pytest.approx(TIMES.step_s(2, [100]), rel=0.05)
    assert (timing.store_latency_s, timing.disk_latency_s) == pytest.approx((0.020, 0.010))
    assert timing.store_bytes_per_s == pytest.approx(1e8)
    overheads_s = timing.gateway_s + 2 * timing.bus_s + timing.worker_s + timing.relay_s
    assert overheads_s == pytest.approx(TIMES.way_s + TIMES.relay_s, rel=0.1)
    assert timing.worker_s == pytest.approx(overheads_s - 0.003, rel=0.05)
    assert measured.restart_s == 3.0


def test_the_step_that_proves_an_ordered_load_is_no_part_of_the_hop(measured: Measured) -> None:
    proof_s = measured.timing.steps.step_s(1, 4, 1)
    assert measured.timing.slot_latency_s == pytest.approx(0.030 - proof_s, rel=0.01)


def test_requests_that_found_their_adapter_in_ram_say_better_than_orders_how_long_it_took(measured: Measured) -> None:
    alike = [each for each in lone_of(TIMES) if each.prompt_tokens <= 50]
    later_s = 0.045
    climbed = [msgspec.structs.replace(each, tier="ram", first_s=(each.first_s or 0.0) + later_s) for each in alike]
    found = _measured(climbed).timing.slot_latency_s
    assert found == pytest.approx(later_s, rel=0.05)


def test_a_timing_comes_back_from_its_file_as_it_was(measured: Measured, tmp_path: Path) -> None:
    path = write_measured(measured, tmp_path / "deep/timing.json")
    assert read_measured(path) == measured
    assert isinstance(read_measured(path).timing.steps, MeasuredTable)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (path := tmp_path / "bench.json").write_text('{"figures": {}}')
    with pytest.raises(NoTiming, match=r"bench\.json is no timing: .*timing"):
        read_measured(path)


def test_a_preset_is_played_with_what_was_measured(measured: Measured) -> None:
    scenario = played_with(fleet_a(Size(minutes=1.0)), measured)
    assert scenario.timing == measured.timing
    assert {pool.batch for pool in scenario.pools} == {BATCH}


def test_the_twin_takes_the_file_from_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--timing", str(tmp_path / "none.json")]) == 2
    assert "none.json is no timing" in capsys.readouterr().err


def test_what_was_found_is_said(measured: Measured) -> None:
    said = "\n".join(lines(measured))
    assert "step of 1 rows           11.0" in said
    assert "store to disk            20.00 ms and 100 MB/s" in said
    assert f"held up by another       {1000 * (measured.timing.line_s or 0.0):.2f} ms" in said
    assert f"a prompt beside answers  {measured.timing.crowd_share:.0%} longer" in said
    assert "a replica restarts in    3.0 s" in said
    assert msgspec.json.encode(measured)
