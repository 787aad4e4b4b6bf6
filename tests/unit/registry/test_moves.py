"""Migrations: what may be done when, what the whole costs, and who may follow whom."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from services.registry.core.base_migration import moves
from services.registry.core.base_migration.move_plan import Terms, Use, blocked, decide_start, plan_row, totals
from services.registry.core.base_migration.move_progress import StateCount, progress
from services.registry.core.base_migration.moves import Migration, Turn
from services.registry.core.base_migration.pointers import Pointer, decide_unneeded, told
from services.registry.core.deployment.aliases import Denied
from services.registry.core.files.description import check_description
from services.registry.core.lifecycle import Move
from services.registry.core.records import StoredAdapter, after_move
from shared.messages.pools import pool_id
from tests.support.adapter_files import announcement, file_of
from tests.support.migration_samples import NEW, OLD, item, migration
from tests.support.stored_adapters import verified
from tests.support.verifying import AROUND

A, B = "acme/a:prod", "acme/b:prod"


# -- the migration -------------------------------------------------------------------------------------


WISH = Turn(actor="ann", reason="why")


@pytest.mark.parametrize(
    ("state", "targets"),
    [
        ("running", {"held", "finishing", "cancelled"}),
        ("held", {"running", "cancelled"}),
        ("finishing", {"running", "finished"}),
        ("finished", set()),
        ("cancelled", set()),
    ],
)
def test_a_migration_turns_only_where_it_may(state: str, targets: set[str]) -> None:
    every = {"running", "held", "finishing", "finished", "cancelled"}
    for target in every - {state}:
        turned = moves.turn(migration(state=state), target, WISH, 5.0)
        if target in targets:
            assert isinstance(turned, Migration)
            assert (turned.state, turned.actor, turned.reason, turned.updated_at_s) == (target, "ann", "why", 5.0)
        else:
            assert isinstance(turned, Denied)
            assert (turned.kind, turned.code) == ("conflict", f"migration_{state}")
    assert moves.turn(migration(state=state), state, WISH, 5.0) == migration(state=state)


@pytest.mark.parametrize("state", ["held", "finishing", "finished", "cancelled"])
def test_aliases_are_moved_and_adapters_asked_for_only_while_it_is_running(state: str) -> None:
    there = migration(state=state)
    for fault in (moves.unready(there, item("trained"), A), moves.retry(there, item("failed"), "v1", 1.0)):
        assert isinstance(fault, Denied)
        assert fault.code == f"migration_{state}"


def test_an_alias_goes_back_while_a_migration_is_held() -> None:
    assert moves.irrevocable(migration(state="held"), item("cut_over"), A) is None
    assert moves.irrevocable(migration(), None, A) == moves.not_in_migration(migration(), A)
    refused = moves.irrevocable(migration(state="cancelled"), item("cut_over"), A)
    assert refused is not None
    assert refused.code == "migration_cancelled"


@pytest.mark.parametrize("state", ["planned", "requested", "failed", "held"])
def test_an_alias_waits_for_a_successor_that_passed(state: str) -> None:
    refused = moves.unready(migration(), item(state, reason="as it says"), A)
    assert refused is not None
    assert (refused.code, "as it says" in refused.message) == ("successor_not_ready", True)


def test_only_what_failed_is_asked_for_again() -> None:
    assert moves.retry(migration(), item("requested"), "v1", 1.0) == item("requested")
    for found, code in ((item("trained"), "item_not_failed"), (None, "adapter_not_in_migration")):
        refused = moves.retry(migration(), found, "v1", 1.0)
        assert isinstance(refused, Denied)
        assert refused.code == code


def test_a_base_is_left_by_one_migration_at_a_time() -> None:
    third = "ef" * 32
    assert decide_start(migration(), [migration(migration_id="m0")]) == migration(migration_id="m0")
    for origin, target in itertools.permutations([OLD.base_model_hash, NEW.base_model_hash, third], 2):
        wish = migration(from_base_model_hash=origin, to_base_model_hash=target)
        decided = decide_start(wish, [migration(migration_id="m0")])
        if (origin, target) == (third, NEW.base_model_hash):
            assert decided == wish
        elif origin != OLD.base_model_hash or target != NEW.base_model_hash:
            assert isinstance(decided, Denied)
            assert (decided.code, "m0" in decided.message) == ("migration_open", True)


# -- the plan ------------------------------------------------------------------------------------------


def stored(**changes: Any) -> StoredAdapter:
    announced = announcement(file_of(), **{"dataset_uri": "s3://data/acme", **changes})
    return after_move(verified(announced, OLD), Move(state="active", reason="", at_s=0.0))


def test_what_can_be_trained_again_costs_its_hours() -> None:
    row = plan_row(stored(), NEW, Use(aliases=(A,), requests_per_day=12.5), Terms())
    assert (row.action, row.gpu_hours, row.usd) == ("retrain", 0.5, 1.25)
    assert row.to_pool_id == pool_id(NEW.base_model_hash, 8)


def test_what_cannot_be_trained_again_says_every_reason() -> None:
    narrow = msgspec.structs.replace(
        NEW, rank_classes=(8,), layers=1, modules={name: NEW.modules[name] for name in ("q_proj", "v_proj")}
    )
    adapter = stored(dataset_uri=None, rank=16, target_modules=("model.layers.1.self_attn.q_proj", "down_proj"))
    why = blocked(adapter, narrow)
    assert why is not None
    for part in ("without a dataset_uri", "rank is 16", "new-base is 8", "new-base has no down_proj, layer 1"):
        assert part in why
    row = plan_row(adapter, narrow, Use(aliases=(A,)), Terms())
    assert (row.action, row.reason, row.to_pool_id, row.usd) == ("blocked", why, None, 0.0)


def test_what_no_alias_means_is_retired_for_nothing() -> None:
    row = plan_row(stored(dataset_uri=None), NEW, Use(), Terms())
    assert (row.action, row.gpu_hours) == ("retire", 0.0)


def test_the_totals_count_every_alias_once() -> None:
    uses = (Use(aliases=(A, B), requests_per_day=1.0), Use(aliases=(B,), requests_per_day=2.0), Use())
    rows = [plan_row(stored(), NEW, use, Terms(gpu_hours_each=2.0, usd_per_gpu_hour=3.0)) for use in uses]
    found = totals(rows)
    assert (found.adapters, found.aliases, found.retrain, found.retire, found.blocked) == (3, 2, 2, 1, 0)
    assert (found.requests_per_day, found.gpu_hours, found.usd) == (3.0, 4.0, 12.0)


def test_what_is_left_is_what_an_alias_means_and_has_no_successor() -> None:
    counts = [
        StateCount(state="planned", items=5, named=1, aliases_left=1, aliases_moved=0),
        StateCount(state="requested", items=2, named=2, aliases_left=3, aliases_moved=0),
        StateCount(state="cut_over", items=4, named=0, aliases_left=0, aliases_moved=4),
    ]
    found = progress(migration(), counts, overdue=1)
    assert (found.items, found.untrained, found.aliases_left, found.aliases_moved, found.overdue) == (11, 3, 4, 4, 1)
    assert (found.gpu_hours_left, found.usd_left) == (1.5, 3.75)
    assert found.by_state == {"planned": 5, "requested": 2, "cut_over": 4}


# -- what points at a base -----------------------------------------------------------------------------


def test_a_base_is_unneeded_once_nothing_points_at_it() -> None:
    assert decide_unneeded("small-base", []) is None
    pointers = [
        Pointer(kind="adapter", name="active", adapter_id="v1"),
        *(Pointer(kind="alias", name=name, adapter_id="v1") for name in (B, A)),
    ]
    needed = decide_unneeded("small-base", pointers)
    assert needed is not None
    assert needed.message == "Base model small-base cannot go: 2 aliases, 1 adapter still point at it."
    assert [one.message for one in told(needed)] == [
        f"Alias {A} means v1.", f"Alias {B} means v1.", "Adapter v1 is active.",
    ]  # fmt: skip


# -- who may follow whom -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predecessor_id", "tenant_id", "codes"),
    [
        ("v1", "acme", []),
        ("v1", "globex", ["predecessor_unknown"]),
        ("v1", None, ["predecessor_unknown"]),
        ("acme-support-1", "acme", ["predecessor_unknown"]),
        (None, None, []),
    ],
)
def test_a_version_follows_one_of_its_own_tenant(
    predecessor_id: str | None, tenant_id: str | None, codes: list[str]
) -> None:
    around = msgspec.structs.replace(AROUND, predecessor_tenant_id=tenant_id)
    found = check_description(announcement(file_of(), predecessor_id=predecessor_id), around)
    assert [one.code for one in found] == codes
