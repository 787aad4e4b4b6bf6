"""Replicas that come and go under a supervisor that does nothing but remember."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.local.fleet import ProcessSpec
from infra.local.replicas import Replicas
from shared.messages.pools import merged_pool_id
from shared.supervision import AskReplicas
from tests.unit.infra_local.test_fleet import inputs

POOL, WIDE = "base-r16", "base-r64"
DIGEST = "d1" * 32


class Remembered:
    """Children whose end takes until somebody says `gone`."""

    def __init__(self, *names: str) -> None:
        self.specs: dict[str, ProcessSpec | None] = dict.fromkeys(names)
        self.leaving: set[str] = set()

    def names(self) -> frozenset[str]:
        return frozenset(self.specs)

    def is_leaving(self, name: str) -> bool:
        return name in self.leaving

    def start_service(self, spec: ProcessSpec) -> None:
        assert spec.name not in self.specs, "its predecessor still runs"
        self.specs[spec.name] = spec

    def retire(self, name: str) -> None:
        self.leaving.add(name)

    def gone(self, name: str) -> None:
        self.leaving.remove(name)
        del self.specs[name]


def fleet(children: Remembered, pools: tuple[str, ...] = (POOL,), **settings: Any) -> Replicas:
    chosen = inputs(**{"replicas": 1, "autoscale": "1..3", **settings})
    chosen = replace(chosen, more_folders=tuple(Path(f"/models/{pool}") for pool in pools[1:]))
    return Replicas(chosen, children, pools, lambda line: None)


def running(replicas: Replicas, pool_id: str = POOL) -> tuple[str, ...]:
    return replicas.answer(AskReplicas(pool_id=pool_id)).replica_ids


def test_a_question_changes_nothing() -> None:
    children = Remembered("replica-0", "gateway")
    assert running(fleet(children)) == ("replica-0",)
    assert children.names() == {"replica-0", "gateway"}


def test_as_many_start_as_are_missing_and_the_same_order_again_starts_none() -> None:
    children = Remembered("replica-0")
    replicas = fleet(children)
    for _ in range(2):
        told = replicas.answer(AskReplicas(pool_id=POOL, desired=3))
        assert told.replica_ids == ("replica-0", "replica-1", "replica-2")
    ports = {spec.env["LORAFLEET_WORKER_PROBE_PORT"] for spec in children.specs.values() if spec}
    assert len(ports) == 2
    assert not any(spec.vital for spec in children.specs.values() if spec), "the fleet was there without them"


def test_only_those_that_are_named_are_removed_and_their_place_is_taken_once_they_are_gone() -> None:
    children = Remembered("replica-0", "replica-1", "replica-2")
    replicas = fleet(children, replicas=3)
    assert replicas.answer(AskReplicas(pool_id=POOL, desired=2, remove=("replica-1",))).replica_ids == (
        "replica-0",
        "replica-2",
    )
    assert replicas.answer(AskReplicas(pool_id=POOL, desired=3)).replica_ids == ("replica-0", "replica-2", "replica-3")
    children.gone("replica-1")
    assert running(replicas) == ("replica-0", "replica-2", "replica-3")
    assert replicas.answer(AskReplicas(pool_id=POOL, desired=4)).replica_ids[1] == "replica-1"


def test_fewer_are_desired_but_none_is_named_so_none_goes() -> None:
    children = Remembered("replica-0", "replica-1")
    assert fleet(children, replicas=2).answer(AskReplicas(pool_id=POOL, desired=1)).replica_ids == (
        "replica-0",
        "replica-1",
    )
    assert not children.leaving


def test_a_replica_of_one_pool_is_not_removed_for_another() -> None:
    children = Remembered("replica-0", "replica-1")
    replicas = fleet(children, (POOL, WIDE), more_pools=("r64x1",))
    told = replicas.answer(AskReplicas(pool_id=WIDE, desired=1, remove=("replica-0", "replica-1")))
    assert children.leaving == {"replica-1"}
    assert told.replica_ids == ("replica-2",)
    spec = children.specs["replica-2"]
    assert spec is not None
    assert spec.env["LORAFLEET_WORKER_RANK_LIMIT"] == "64"


def test_a_merged_replica_is_of_the_pool_that_its_adapter_comes_from() -> None:
    children = Remembered("replica-0")
    replicas, pool_id = fleet(children), merged_pool_id(POOL, DIGEST)
    ask = AskReplicas(pool_id=pool_id, desired=1, merged_id="big-1", merged_digest=DIGEST)
    assert replicas.answer(ask).replica_ids == ("replica-1",)
    spec = children.specs["replica-1"]
    assert spec is not None
    assert spec.env["LORAFLEET_WORKER_MERGED"] == "big-1"
    assert running(replicas) == ("replica-0",)


def test_a_merged_replica_can_be_stopped_by_whoever_no_longer_knows_its_adapter() -> None:
    children = Remembered("replica-0")
    replicas, merged = fleet(children), merged_pool_id(POOL, DIGEST)
    replicas.answer(AskReplicas(pool_id=merged, desired=1, merged_id="ad-1", merged_digest=DIGEST))
    assert running(replicas, merged) == ("replica-1",)
    told = replicas.answer(AskReplicas(pool_id=merged, desired=2, remove=("replica-1",)))
    assert (told.known, told.replica_ids, children.leaving) == (True, (), {"replica-1"})
    assert children.names() == {"replica-0", "replica-1"}


def test_what_an_operator_had_merged_is_not_the_autoscalers_to_stop() -> None:
    children = Remembered("replica-0", "merged-0")
    replicas = fleet(children, merged=("big-1",))
    ask = AskReplicas(pool_id=merged_pool_id(POOL, DIGEST), desired=0, merged_id="big-1", merged_digest=DIGEST)
    assert replicas.answer(ask).replica_ids == ()
    assert not children.leaving


@pytest.mark.parametrize("pool_id", ["other-r16", merged_pool_id("other-r16", DIGEST)])
def test_pools_of_other_fleets_are_not_known(pool_id: str) -> None:
    children = Remembered("replica-0")
    told = fleet(children).answer(AskReplicas(pool_id=pool_id, desired=3))
    assert not told.known
    assert children.names() == {"replica-0"}


def test_an_order_from_before_the_last_one_s_lease_changes_nothing() -> None:
    children = Remembered("replica-0")
    replicas = fleet(children)
    assert replicas.answer(AskReplicas(pool_id=POOL, desired=2, epoch=3)).error == ""
    late = replicas.answer(AskReplicas(pool_id=POOL, desired=3, remove=("replica-0",), epoch=2))
    assert late.error == "an order of epoch 2 comes after one of epoch 3"
    assert late.replica_ids == ("replica-0", "replica-1")
    assert not children.leaving
    assert running(replicas) == ("replica-0", "replica-1"), "a question has no epoch"


def test_a_process_that_cannot_be_started_is_said_to_be_so() -> None:
    class Refusing(Remembered):
        def start_service(self, spec: ProcessSpec) -> None:
            raise OSError("no more processes")

    told = fleet(Refusing("replica-0")).answer(AskReplicas(pool_id=POOL, desired=2))
    assert told.error == "no replica can be started: no more processes"
    assert told.replica_ids == ("replica-0",)
