"""A fleet that grows under a load and shrinks after it, and nobody who asks it notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from infra.local.temporary import TemporaryFleet, temporary_fleet
from loadtest.driver.asking import Target
from loadtest.driver.planned import planned
from loadtest.driver.running import drive
from loadtest.driver.seen import Seen
from loadtest.workloads.shape import Fixed, Lengths, TrafficShape
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually

ROWS = 4
"""Of 20 tokens a second each: one replica gives 80, and is to give 64."""
TOKENS = 25
FOR_FOUR = TrafficShape(
    customers=3, rate_per_s=11.0, for_s=12.0, lengths=Lengths(prompt=Fixed(tokens=10), output=Fixed(tokens=TOKENS))
)
FOR_THREE = msgspec.structs.replace(FOR_FOUR, rate_per_s=6.0, for_s=14.0)

ONE_EACH, TWO_EACH = range(3, 4), range(6, 7)
TWO_OR_MORE_EACH = range(6, 13)
"""Owners of three adapters: the busier one is, the more it has."""


@pytest.fixture(scope="module")
def growing(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryFleet]:
    """Replicas without a model, whose steps take as long as those of a large one: only then are two cores enough. Who
    asks would rather wait for a new replica than come again later."""
    brief = {"DOWN_COOLDOWN_S": "6", "DOWN_STEP_S": "2", "PANIC_S": "5", "AVERAGE_S": "5"}
    with temporary_fleet(
        tmp_path_factory.mktemp("scaling"),
        model=str(model_folder),
        demo="false",
        replicas="2",
        autoscale="1..4",
        engine="timed",
        max_rows=str(ROWS),
        gateway_shed_late="false",
        **{f"autoscaler_{name.lower()}": value for name, value in brief.items()},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def admin(growing: TemporaryFleet) -> Iterator[Pipeline]:
    headers = {"Authorization": f"Bearer {growing.connection.admin_key}"}
    with httpx.Client(base_url=growing.connection.admin_url, headers=headers, timeout=60.0, trust_env=False) as http:
        yield Pipeline(growing, http)


class Fleet:
    """The growing fleet and a customer with three adapters."""

    def __init__(self, fleet: TemporaryFleet, admin: Pipeline, folders: dict[str, Path]) -> None:
        self.admin = admin
        self.url = fleet.connection.url
        self.aliases = [f"acme/scaled-{at}:prod" for at in range(3)]
        for at, (alias, folder) in enumerate(zip(self.aliases, folders.values(), strict=False)):
            admin.bring(folder, f"scaled-{at}", alias)
        self.key = admin.key("acme")

    def owned(self) -> dict[str, int]:
        """How many adapters each replica that serves is to hold."""
        view = self.admin.admin.get("/internal/fleet").raise_for_status().json()
        return {one["replica_id"]: one["assigned"] for one in view["replicas"] if one["ready"] and not one["draining"]}

    def owned_by_others_than(self, before: dict[str, int]) -> dict[str, int] | None:
        """The same as `owned`, once others hold something too."""
        found = self.owned()
        return found if any(count for replica_id, count in found.items() if replica_id not in before) else None

    def wait(self, replicas: int, owned: range, deadline_s: float) -> dict[str, int]:
        """Until so many serve, and so many adapters are theirs in all: nobody else's."""

        def there() -> dict[str, int] | None:
            found = self.owned()
            return found if len(found) == replicas and sum(found.values()) in owned else None

        what = f"{replicas} replicas to own {owned[0]} to {owned[-1]} adapters"
        return eventually(there, what, deadline_s) or {}

    def load(self, shape: TrafficShape) -> list[Seen]:
        target = Target(url=self.url, key=self.key)
        return asyncio.run(drive(target, planned(shape, self.aliases))).seen


@pytest.fixture(scope="module")
def fleet(growing: TemporaryFleet, admin: Pipeline, canary_folders: dict[str, Path]) -> Fleet:
    return Fleet(growing, admin, canary_folders)


def all_served(seen: list[Seen]) -> None:
    assert len(seen) > 50
    assert {(one.outcome, one.reason) for one in seen} == {("ok", "")}
    assert {one.tokens for one in seen} == {TOKENS}


def test_c34_two_replicas_become_four_under_load_and_one_again_and_owners_follow(fleet: Fleet) -> None:
    before = fleet.wait(replicas=2, owned=TWO_EACH, deadline_s=30.0)
    with ThreadPoolExecutor(1) as client:
        load = client.submit(fleet.load, FOR_FOUR)
        fleet.wait(replicas=4, owned=TWO_OR_MORE_EACH, deadline_s=60.0)
        grown = eventually(lambda: fleet.owned_by_others_than(before), "an adapter to move to a new replica")
        all_served(load.result())
    assert grown.keys() > before.keys()
    left = fleet.wait(replicas=1, owned=ONE_EACH, deadline_s=90.0)
    assert left.keys() < grown.keys()


def test_one_replica_becomes_three_under_load_and_one_again_and_no_request_fails(fleet: Fleet) -> None:
    fleet.wait(replicas=1, owned=ONE_EACH, deadline_s=30.0)
    with ThreadPoolExecutor(1) as client:
        load = client.submit(fleet.load, FOR_THREE)
        eventually(lambda: len(fleet.owned()) == 3, "three replicas to serve", deadline_s=60.0)
        all_served(load.result())
    fleet.wait(replicas=1, owned=ONE_EACH, deadline_s=90.0)
