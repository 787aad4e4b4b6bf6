"""A thousand first requests for cold adapters at once, and a start with an empty disk: what is bounded stays so."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.cold_replica import DEADLINE_S, SETTINGS
from loadtest.cold_storm import StormFigures, StormLoad, WarmLoad, restarted, storm
from loadtest.virtual_time import run_virtually
from services.replica_worker.core import admission
from services.replica_worker.core.admission import FETCHING_SHARE
from tests.support.tiny_model import tiny_model_once

SHARED = StormLoad(requests=500, adapters=10, patient=False)
THOUSAND = StormLoad(patient=False)
BRIEF = WarmLoad(adapters=300, requests=80, head_start_s=20.0)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> StormFigures:
    return run_virtually(storm(tmp_path_factory.mktemp("storm"), model_folder, THOUSAND))


def test_everyone_who_is_let_in_is_answered_and_the_others_are_told_when_to_come_again(thousand: StormFigures) -> None:
    assert thousand.failed == 0
    assert thousand.admitted + thousand.refused == 1_000
    assert thousand.admitted >= 100, "48 s of a store that gives one adapter in 0.4 s"
    assert thousand.ttft_max_s <= DEADLINE_S
    assert thousand.ttft_p50_s == pytest.approx(thousand.admitted / 2 * 0.4, rel=0.1), "as fast as the store gives them"
    assert 1.0 <= thousand.longest_retry_after_s <= 30.0


def test_nothing_grows_without_bound_and_each_adapter_is_fetched_once(thousand: StormFigures) -> None:
    assert thousand.most_waiting <= SETTINGS["queue_limit"]
    assert thousand.most_fetches_at_once <= 4
    assert thousand.fetches == thousand.admitted
    assert thousand.most_ram_bytes <= 31e9
    assert thousand.most_disk_bytes <= 64e9


def test_c26_fifty_first_requests_for_each_of_ten_adapters_are_ten_fetches(tmp_path: Path, model_folder: Path) -> None:
    figures = run_virtually(storm(tmp_path, model_folder, SHARED))
    assert figures.fetches == 10
    assert figures.failed == 0
    assert figures.admitted >= SETTINGS["queue_limit"]


def test_without_a_bound_on_fetches_some_are_let_in_and_never_answered(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "FETCHING_SHARE", 1e9 * FETCHING_SHARE)
    figures = run_virtually(storm(tmp_path, model_folder, THOUSAND))
    assert figures.failed > 0


def test_busiest_first_a_start_with_an_empty_disk_finds_more_of_its_requests_warm(
    tmp_path: Path, model_folder: Path
) -> None:
    by_heat = run_virtually(restarted(tmp_path / "heat", model_folder, BRIEF, with_heat=True))
    by_name = run_virtually(restarted(tmp_path / "name", model_folder, BRIEF, with_heat=False))
    assert by_heat.refused == by_name.refused == 0
    assert by_heat.warm_share > by_name.warm_share + 0.1, f"{by_heat} {by_name}"
