"""One ordinary replica, and one with a canary merged into its base."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from infra.local.temporary import TemporaryFleet, temporary_fleet
from tests.support.asking import ask, stream, wait_answers
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually

ALIAS, OTHER = "acme/big:prod", "acme/small:prod"


@pytest.fixture(scope="module")
def fleet_with_merged(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryFleet]:
    """Its autoscaler gives a customer a merged replica after seconds of some traffic, and takes it away after a few."""
    brief = {"merged_share": "0.001", "merged_hold_s": "3", "merged_quiet_s": "2", "average_s": "2"}
    with temporary_fleet(
        tmp_path_factory.mktemp("merged"),
        model=str(model_folder),
        demo="false",
        replicas="1",
        merged="big-1",
        autoscale="1..1",
        **{f"autoscaler_{name}": value for name, value in brief.items()},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def admin(fleet_with_merged: TemporaryFleet) -> Iterator[Pipeline]:
    connection = fleet_with_merged.connection
    headers = {"Authorization": f"Bearer {connection.admin_key}"}
    with httpx.Client(base_url=connection.admin_url, headers=headers, timeout=60.0, trust_env=False) as http:
        yield Pipeline(fleet_with_merged, http)


@pytest.fixture(scope="module")
def client(fleet_with_merged: TemporaryFleet, admin: Pipeline) -> Iterator[OpenAI]:
    url = f"{fleet_with_merged.connection.url}/v1"
    with OpenAI(base_url=url, api_key=admin.key("acme"), max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def marks(admin: Pipeline, client: OpenAI, canary_folders: dict[str, Path]) -> dict[str, str]:
    """Alias to marker of the canary that is merged, and of one that is not."""
    (big, big_folder), (small, small_folder) = list(canary_folders.items())[:2]
    admin.bring(big_folder, "big-1", ALIAS)
    admin.bring(small_folder, "small-1", OTHER)
    wait_answers(client, ALIAS, big)
    wait_answers(client, OTHER, small)
    wait_merged(admin)
    return {ALIAS: big, OTHER: small}


def wait_merged(admin: Pipeline) -> None:
    eventually(lambda: (admin.replica("merged-0") or {}).get("ready"), "merged-0 to be ready")


def answered_by(fleet: TemporaryFleet) -> list[tuple[str, str]]:
    """Adapter and replica of every request that has ended, as the gateway logs it."""
    lines = [json.loads(line) for line in fleet.layout.log("gateway").read_text().splitlines() if line.startswith("{")]
    return [(line["adapter_id"], line["replica_id"]) for line in lines if line.get("outcome") == "stop"]


def last_replica(fleet: TemporaryFleet, adapter_id: str) -> str:
    return [replica for adapter, replica in answered_by(fleet) if adapter == adapter_id][-1]


def wait_asked_of(fleet: TemporaryFleet, client: OpenAI, marker: str, replica_id: str) -> None:
    """Until requests for the merged adapter go to this replica; every answer on the way is right."""

    def there() -> bool:
        assert ask(client, ALIAS) == marker
        return last_replica(fleet, "big-1") == replica_id

    eventually(there, f"{ALIAS} to be answered by {replica_id}")


def test_its_alias_is_answered_by_the_merged_replica_and_others_are_not(
    fleet_with_merged: TemporaryFleet, admin: Pipeline, client: OpenAI, marks: dict[str, str]
) -> None:
    wait_asked_of(fleet_with_merged, client, marks[ALIAS], "merged-0")
    assert "".join(stream(client, ALIAS)) == marks[ALIAS]
    assert ask(client, OTHER) == marks[OTHER]
    base = ask(client, admin.base["name"])
    assert not any(marker in base for marker in marks.values())
    assert {replica for adapter, replica in answered_by(fleet_with_merged) if adapter == "small-1"} == {"replica-0"}


def test_the_headers_name_the_adapter_as_ever(client: OpenAI, marks: dict[str, str]) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=ALIAS, messages=[{"role": "user", "content": "Hi"}], temperature=0, max_tokens=24
    )
    assert raw.headers["x-adapter-id"] == "big-1"
    assert raw.headers["x-adapter-tier"] == "gpu"
    assert raw.parse().choices[0].message.content == marks[ALIAS]


def test_status_shows_it_with_its_adapter_alone(
    fleet_with_merged: TemporaryFleet, admin: Pipeline, marks: dict[str, str]
) -> None:
    summary = admin.replica("merged-0")
    assert summary is not None
    assert (summary["slots"], summary["assigned"], summary["gpu"]) == (0, 0, 1)
    assert [entry["adapter_id"] for entry in summary["adapters"]] == ["big-1"]
    shown = fleet_with_merged.console("status").stdout
    assert "ready (merged)" in next(line for line in shown.splitlines() if line.startswith("merged-0"))


def test_a_new_version_behind_the_alias_is_served_by_the_others_until_it_is_rolled_back(
    fleet_with_merged: TemporaryFleet,
    admin: Pipeline,
    client: OpenAI,
    marks: dict[str, str],
    canary_folders: dict[str, Path],
) -> None:
    wait_asked_of(fleet_with_merged, client, marks[ALIAS], "merged-0")
    marker, folder = list(canary_folders.items())[2]
    admin.bring(folder, "big-2", ALIAS)
    wait_answers(client, ALIAS, marker)
    assert {ask(client, ALIAS) for _ in range(5)} == {marker}
    assert {replica for adapter, replica in answered_by(fleet_with_merged) if adapter == "big-2"} == {"replica-0"}
    admin.set_alias(ALIAS, "big-1")
    wait_answers(client, ALIAS, marks[ALIAS])
    wait_asked_of(fleet_with_merged, client, marks[ALIAS], "merged-0")


def test_another_adapter_with_the_same_bytes_is_served_by_the_others(
    fleet_with_merged: TemporaryFleet,
    admin: Pipeline,
    client: OpenAI,
    marks: dict[str, str],
    canary_folders: dict[str, Path],
) -> None:
    admin.bring(canary_folders[marks[ALIAS]], "twin-1", "acme/twin:prod")
    wait_answers(client, "acme/twin:prod", marks[ALIAS])
    wait_asked_of(fleet_with_merged, client, marks[ALIAS], "merged-0")
    ask(client, "acme/twin:prod")
    assert {replica for adapter, replica in answered_by(fleet_with_merged) if adapter == "twin-1"} == {"replica-0"}


def test_when_it_is_killed_the_other_replica_answers_until_it_is_back(
    fleet_with_merged: TemporaryFleet, admin: Pipeline, client: OpenAI, marks: dict[str, str]
) -> None:
    gone = fleet_with_merged.kill("merged-0")
    wait_asked_of(fleet_with_merged, client, marks[ALIAS], "replica-0")
    eventually(lambda: fleet_with_merged.pid("merged-0") != gone, "the supervisor to start merged-0 again")
    wait_merged(admin)
    wait_asked_of(fleet_with_merged, client, marks[ALIAS], "merged-0")


def test_a_customer_with_much_traffic_gets_a_merged_replica_until_it_is_quiet(
    fleet_with_merged: TemporaryFleet, client: OpenAI, marks: dict[str, str]
) -> None:
    def is_there() -> bool:
        assert ask(client, OTHER) == marks[OTHER]
        return last_replica(fleet_with_merged, "small-1") not in ("replica-0", "merged-0")

    eventually(is_there, f"{OTHER} to be answered by a replica of its own")
    its_own = last_replica(fleet_with_merged, "small-1")
    assert {ask(client, OTHER) for _ in range(5)} == {marks[OTHER]}
    eventually(lambda: its_own not in fleet_with_merged.pids(), f"{its_own} to go")
    assert ask(client, OTHER) == marks[OTHER]
    assert last_replica(fleet_with_merged, "small-1") == "replica-0"
    assert "merged-0" in fleet_with_merged.pids(), "what the operator had merged is not the autoscaler's"
