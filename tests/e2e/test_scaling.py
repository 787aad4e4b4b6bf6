"""A fleet that grows under a load and shrinks after it, and nobody who asked it notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from infra.local.temporary import TemporaryFleet, temporary_fleet
from loadtest.driver import drive
from loadtest.workload import Shape, arrivals
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually

ROWS = 4
"""Of 20 tokens a second each: one replica gives 80, so a load of 200 needs three."""
LOAD = Shape(rate_per_s=8.0, requests=160, max_tokens=25)


@pytest.fixture(scope="module")
def growing(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryFleet]:
    """Replicas without a model, whose steps take as long as those of a large one: only then are two cores enough."""
    brief = {"DOWN_COOLDOWN_S": "6", "DOWN_STEP_S": "2", "PANIC_S": "5", "AVERAGE_S": "5"}
    with temporary_fleet(
        tmp_path_factory.mktemp("scaling"),
        model=str(model_folder),
        demo="false",
        replicas="1",
        autoscale="1..3",
        engine="timed",
        max_rows=str(ROWS),
        **{f"autoscaler_{name.lower()}": value for name, value in brief.items()},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def admin(growing: TemporaryFleet) -> Iterator[Pipeline]:
    headers = {"Authorization": f"Bearer {growing.connection.admin_key}"}
    with httpx.Client(base_url=growing.connection.admin_url, headers=headers, timeout=60.0, trust_env=False) as http:
        yield Pipeline(growing, http)


def serving(admin: Pipeline) -> set[str]:
    view = admin.admin.get("/internal/fleet").raise_for_status().json()
    return {one["replica_id"] for one in view["replicas"] if one["ready"]}


def test_one_replica_becomes_three_under_load_and_one_again_and_no_request_fails(
    growing: TemporaryFleet, admin: Pipeline, canary_folders: dict[str, Path]
) -> None:
    aliases = [f"acme/scaled-{at}:prod" for at in range(3)]
    for at, (alias, folder) in enumerate(zip(aliases, canary_folders.values(), strict=False)):
        admin.bring(folder, f"scaled-{at}", alias)
    key, url = admin.key("acme"), growing.connection.url
    assert len(serving(admin)) == 1
    with ThreadPoolExecutor(1) as client:
        load = client.submit(lambda: asyncio.run(drive(url, key, list(arrivals(LOAD, aliases)))))
        eventually(lambda: len(serving(admin)) == 3, "three replicas to serve", deadline_s=40.0)
        seen, _ = load.result()
    assert {one.outcome for one in seen} == {"ok"}
    assert {one.tokens for one in seen} == {LOAD.max_tokens}
    eventually(lambda: len(serving(admin)) == 1, "one replica to be left", deadline_s=90.0)
