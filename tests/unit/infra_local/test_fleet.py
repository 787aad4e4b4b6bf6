"""The embedded fleet as a function of an operator's choices: what is listed here is what the services read."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from infra.local.fleet import BusLogin, FleetInputs, ProcessSpec, merged_processes, processes
from infra.local.layout import Layout
from infra.local.settings import LocalSettings
from shared.contracts.channel import Service
from shared.runtime.settings import read


def specs(**settings: Any) -> tuple[ProcessSpec, ...]:
    return processes(inputs(**settings))


def inputs(**settings: Any) -> FleetInputs:
    logins = {
        service.value: BusLogin(url="nats://127.0.0.1:4222", user=service.value, password=f"of-{service.value}")
        for service in Service
    }
    return FleetInputs(
        layout=Layout(Path("/home with space/.lorafleet")),
        settings=LocalSettings(**settings),
        model_folder=Path("/models/base"),
        admin_key="admin-key-of-this-fleet",
        logins=logins,
    )


@pytest.mark.parametrize("spec", [*specs(), *merged_processes(inputs(merged=("acme-1",)))], ids=lambda spec: spec.name)
def test_every_service_accepts_what_it_is_given(spec: ProcessSpec) -> None:
    module = import_module(f"{spec.module}.settings")
    [kind] = [kind for name, kind in vars(module).items() if name.endswith("Settings")]
    settings = read(kind, module.PREFIX, spec.env)
    assert settings.nats_password == f"of-{spec.module.rpartition('.')[2]}"


def test_only_gateways_know_where_limits_are_held_together() -> None:
    given = replace(inputs(), redis_url="redis://:secret@127.0.0.1:7000/0")
    assert [spec.name for spec in processes(given) if given.redis_url in spec.env.values()] == ["gateway"]
    assert not any("REDIS_URL" in name for spec in specs() for name in spec.env)


def test_only_the_registry_knows_the_admin_key() -> None:
    assert [spec.name for spec in specs() if "admin-key-of-this-fleet" in spec.env.values()] == ["registry"]


def test_replicas_share_nothing_but_model_and_store() -> None:
    first, second = (spec for spec in specs() if spec.name.startswith("replica-"))
    differ = {name.removeprefix("LORAFLEET_WORKER_") for name in first.env if first.env[name] != second.env[name]}
    assert differ == {"REPLICA_ID", "CACHE_FOLDER", "PROBE_PORT"}


def test_every_process_is_asked_on_a_port_of_its_own() -> None:
    urls = [spec.ready_url for spec in specs(replicas=3)]
    assert len(set(urls)) == len(urls) == 7


def test_further_pools_have_replicas_of_their_own_rank_and_model() -> None:
    given = inputs(more_pools=("r64", "/models/next:r16x2"), merged=("acme-1",))
    given = replace(given, more_folders=(Path("/models/base"), Path("/models/next")))
    env = {spec.name: spec.env for spec in (*processes(given), *merged_processes(given))}
    pools = {
        name: (of["LORAFLEET_WORKER_MODEL_FOLDER"], of["LORAFLEET_WORKER_RANK_LIMIT"])
        for name, of in env.items()
        if "LORAFLEET_WORKER_RANK_LIMIT" in of
    }
    own, next_one = ("/models/base", "16"), ("/models/next", "16")
    assert pools == {
        "replica-0": own, "replica-1": own, "replica-2": ("/models/base", "64"), "replica-3": next_one,
        "replica-4": next_one, "merged-0": own,
    }  # fmt: skip
    assert given.settings.probes == 8


def test_an_adapter_that_is_to_be_merged_gets_a_replica_beside_the_others() -> None:
    given = inputs(replicas=3, merged=("acme-1", "d" * 64))
    merged = merged_processes(given)
    assert [(spec.name, spec.env["LORAFLEET_WORKER_MERGED"]) for spec in merged] == [
        ("merged-0", "acme-1"),
        ("merged-1", "d" * 64),
    ]
    ports = {spec.ready_url for spec in (*processes(given), *merged)}
    assert len(ports) == 9
    assert given.settings.probes == 7
    assert not any(spec.vital for spec in merged)
    assert all(spec.vital for spec in processes(given))
    assert all("LORAFLEET_WORKER_MERGED" not in spec.env for spec in processes(given))


def test_what_an_operator_says_to_one_service_reaches_that_one_alone_and_wins() -> None:
    inputs = FleetInputs(
        layout=Layout(Path("/home")),
        settings=LocalSettings(),
        model_folder=Path("/models/base"),
        admin_key="admin-key-of-this-fleet",
        logins={service.value: BusLogin(url="nats://h:1", user=service.value, password="x") for service in Service},
        overrides={"LORAFLEET_GATEWAY_QUEUED_S": "2", "LORAFLEET_WORKER_SLOTS": "9"},
    )
    env = {spec.name: spec.env for spec in processes(inputs)}
    assert env["gateway"]["LORAFLEET_GATEWAY_QUEUED_S"] == "2"
    assert env["replica-1"]["LORAFLEET_WORKER_SLOTS"] == "9"
    assert "LORAFLEET_GATEWAY_QUEUED_S" not in env["registry"]


def test_everyone_who_uses_the_store_is_told_the_same() -> None:
    access = {"s3_endpoint_url": "http://127.0.0.1:9000", "s3_access_key_id": "id", "s3_secret_access_key": "secret"}
    told = {
        spec.name: {name.split("_", 2)[2]: spec.env[name] for name in spec.env if "_S3_" in name or "STORE" in name}
        for spec in specs(store_url="s3://bucket/fleet", **access)
    }
    assert told["registry"] == told["replica-0"] == told["replica-1"]
    assert told["registry"] == {
        "STORE_URL": "s3://bucket/fleet", "S3_REGION": "us-east-1", "S3_ADDRESSING": "path",
        **{name.upper(): value for name, value in access.items()},
    }  # fmt: skip
    assert told["gateway"] == told["placement"] == told["autoscaler"] == {}


def test_without_a_choice_the_store_is_a_folder_of_the_home() -> None:
    [registry] = [spec for spec in specs() if spec.name == "registry"]
    assert registry.env["LORAFLEET_REGISTRY_STORE_URL"] == "file:///home%20with%20space/.lorafleet/store"
