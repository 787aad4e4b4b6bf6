"""Whom to ask before an alias moves, and what their answers come to."""

from __future__ import annotations

import pytest

from services.registry.core.deployment.aliases import AliasState, Denied
from services.registry.core.deployment.deploying import comes_again
from services.registry.core.deployment.residency import judge_residency, whom_to_ask
from tests.support.registry_world import summary

REPLICAS = (
    summary("a", "p", tokens_in_flight=9), summary("b", "p", tokens_in_flight=1), summary("c", "p", ready=False),
    summary("d", "p", draining=True), summary("e", "other"), summary("f", "p", tokens_in_flight=5),
)  # fmt: skip


@pytest.mark.parametrize(
    ("owners", "asked"),
    [
        (("b", "a"), ("b", "a")),
        (("c", "a"), ("a",)),
        (("c", "d"), ("b", "f")),  # none of them can: requests spill to who has promised least
        ((), ("b", "f")),
        (("e",), ("b", "f")),
    ],
)
def test_owners_that_are_ready_are_asked(owners: tuple[str, ...], asked: tuple[str, ...]) -> None:
    assert whom_to_ask("p", REPLICAS, owners) == asked


def test_nobody_is_asked_in_a_pool_without_a_ready_replica() -> None:
    assert whom_to_ask("none", REPLICAS, ("a",)) == ()


def test_one_owner_that_has_it_is_enough() -> None:
    assert judge_residency("v2", {"a": None, "b": "no slot is free"}).ok
    none = judge_residency("v2", {"b": "no slot is free", "a": "it is busy"})
    assert (none.ok, none.reason) == (False, "no owner could make v2 resident (a: it is busy; b: no slot is free)")


def test_only_what_replicas_could_not_do_is_tried_again_and_not_for_ever() -> None:
    unable = Denied(kind="unavailable", code="not_resident", message="")
    decided = Denied(kind="conflict", code="alias_is_newer", message="")
    done = AliasState(alias="acme/a", tenant_id="acme", adapter_id="v1")
    assert [comes_again(one, 10.0, 9.0) for one in (unable, decided, done)] == [True, False, False]
    assert not comes_again(unable, 10.0, 10.0)
