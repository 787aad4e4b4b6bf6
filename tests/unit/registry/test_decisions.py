"""Records, base models, tenants, whom to ask, and what to repair."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from services.registry.core import records
from services.registry.core.base_migration.bases import decide_base_model
from services.registry.core.gating.evaluation import judge, order_replicas
from services.registry.core.reconciliation import repair
from services.registry.core.tenants import tenant_fault
from shared.messages.desired import ModuleShape, TenantRecord
from shared.messages.operations import Evaluation
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE, announcement, file_of
from tests.support.registry_world import summary
from tests.support.stored_adapters import verified

POOL = pool_id(BASE.base_model_hash, 8)


# -- records -------------------------------------------------------------------------------------------


def accepted(**said: Any) -> records.StoredAdapter:
    return verified(announcement(file_of(), **said))


@pytest.mark.parametrize(("rank", "rank_class"), [(1, 8), (8, 8), (9, 16), (16, 16)])
def test_c46_an_adapter_goes_to_the_smallest_pool_that_fits(rank: int, rank_class: int) -> None:
    assert accepted(rank=rank).pool_id == pool_id(BASE.base_model_hash, rank_class)


def test_c50_the_largest_rank_of_a_pattern_decides_the_pool() -> None:
    assert accepted(rank=4, rank_pattern={"q_proj": 16}).pool_id == pool_id(BASE.base_model_hash, 16)


def test_c45_the_record_carries_how_the_weights_are_scaled() -> None:
    record = records.adapter_record(accepted(use_rslora=True, alpha_pattern={"q_proj": 2.0}))
    assert (record.use_rslora, record.alpha, record.alpha_pattern) == (True, 8.0, {"q_proj": 2.0})


def test_who_waits_for_its_evaluation_is_held_by_nobody_unless_it_is_pinned() -> None:
    waiting = accepted()
    evaluating = msgspec.structs.replace(waiting, status="evaluating")
    pinned = msgspec.structs.replace(waiting, pinned=True)
    wanted = [(one.status, records.adapter_record(one).wanted) for one in (waiting, evaluating, pinned)]
    assert wanted == [("verified", False), ("evaluating", True), ("verified", True)]


def test_two_announcements_differ_in_what_they_say_of_the_adapter() -> None:
    known = announcement(file_of())
    assert records.difference(known, msgspec.structs.replace(known, weights_uri="file:///moved")) is None
    assert records.difference(known, msgspec.structs.replace(known, checksum="0" * 64)) == "checksum"
    assert records.difference(known, msgspec.structs.replace(known, alias="acme/x")) == "alias"


def test_a_conflict_names_the_weights_first_and_else_the_field_that_differs() -> None:
    known = announcement(file_of())
    assert records.conflict(known, msgspec.structs.replace(known, weights_uri="file:///moved")) is None
    weights = records.conflict(known, msgspec.structs.replace(known, version="2", checksum="0" * 64))
    assert weights is not None
    assert weights.field == "checksum"
    assert weights.message.endswith(
        f"is already registered with other weights (checksum {known.checksum}): register it under a new id."
    )
    alpha = records.conflict(known, msgspec.structs.replace(known, alpha=77.0))
    assert alpha is not None
    assert f"with another alpha ({known.alpha}, not 77.0)" in alpha.message
    named = records.conflict(msgspec.structs.replace(known, alias="acme/x"), msgspec.structs.replace(known, alias=None))
    assert named is not None
    assert "with another alias ('acme/x', not none)" in named.message


def test_what_a_database_cannot_keep_is_not_kept() -> None:
    assert records.fits_a_record(announcement(b""))
    assert not records.fits_a_record(announcement(b"", rank=1 << 63))
    assert not records.fits_a_record(announcement(b"", weights_uri="a\0b"))


# -- base models and tenants ---------------------------------------------------------------------------


def test_a_base_model_may_stand_alone_and_be_told_again() -> None:
    assert decide_base_model(BASE, [], frozenset()) is None
    assert decide_base_model(BASE, [BASE], frozenset()) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"base_model_hash": "abc"}, "base_model_hash"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"layers": 0}, "layers"),
        ({"layers": 1 << 70}, "layers"),
        ({"max_context_tokens": 0}, "max_context_tokens"),
        ({"rank_classes": ()}, "rank_classes"),
        ({"rank_classes": (0, 8)}, "rank_classes"),
        ({"rank_classes": (8, 8)}, "rank_classes"),
        ({"modules": {}}, "modules"),
        ({"modules": {"q_proj": ModuleShape(in_features=0, out_features=8)}}, "modules"),
    ],
)
def test_a_base_model_that_makes_no_sense_is_refused(changes: dict[str, Any], field: str) -> None:
    fault = decide_base_model(msgspec.structs.replace(BASE, **changes), [], frozenset())
    assert fault is not None
    assert (fault.kind, fault.field) == ("invalid", field)


def test_a_name_means_one_thing() -> None:
    other = msgspec.structs.replace(BASE, base_model_hash="0" * 64)
    assert (fault := decide_base_model(other, [BASE], frozenset())) is not None
    assert fault.code == "name_taken"
    assert (fault := decide_base_model(BASE, [], frozenset({"small-base"}))) is not None
    assert fault.code == "name_taken"


def test_what_follows_from_the_hash_never_changes() -> None:
    fault = decide_base_model(msgspec.structs.replace(BASE, layers=3), [BASE], frozenset())
    assert fault is not None
    assert fault.code == "base_model_differs"


def test_rank_classes_can_be_added_but_not_taken_away() -> None:
    assert decide_base_model(msgspec.structs.replace(BASE, rank_classes=(8, 16, 64)), [BASE], frozenset()) is None
    fault = decide_base_model(msgspec.structs.replace(BASE, rank_classes=(8,)), [BASE], frozenset())
    assert fault is not None
    assert fault.code == "rank_class_in_use"


@pytest.mark.parametrize(
    ("tenant_id", "weight"), [("Acme", 1.0), ("", 1.0), ("a/b", 1.0), ("a", 0.0), ("a", -1.0), ("a", math.inf)]
)
def test_a_tenant_that_makes_no_sense_is_refused(tenant_id: str, weight: float) -> None:
    assert tenant_fault(TenantRecord(tenant_id=tenant_id, weight=weight)) is not None


# -- evaluations ---------------------------------------------------------------------------------------


def test_owners_are_asked_first_then_whoever_promised_least() -> None:
    replicas = [
        summary("busy", POOL, tokens_in_flight=900),
        summary("idle", POOL),
        summary("owner-b", POOL, tokens_in_flight=5000),
        summary("owner-a", POOL, tokens_in_flight=9000),
    ]
    assert order_replicas(POOL, replicas, ("owner-a", "owner-b", "gone")) == ("owner-a", "owner-b", "idle", "busy")


def test_only_ready_replicas_of_the_pool_are_asked() -> None:
    replicas = [summary("a", "other"), summary("b", POOL, ready=False), summary("c", POOL, draining=True)]
    assert order_replicas(POOL, replicas, ("a", "b", "c")) == ()


def evaluation(passed: bool) -> Evaluation:
    return Evaluation(adapter_id="v1", digest="d", replica_id="r1", passed=passed, reason="no effect")


def test_c08_an_evaluation_that_found_no_effect_fails_the_adapter() -> None:
    verdict = judge(evaluation(False))
    assert (verdict.state, "no effect" in verdict.reason, "r1" in verdict.reason) == ("failed", True, True)
    assert judge(evaluation(True)).state == "active"


# -- reconciliation ------------------------------------------------------------------------------------


def test_a_bucket_is_repaired_to_what_is_wanted_and_not_further() -> None:
    todo = repair({("a",): 1, ("b",): 2, ("c",): 3}, {("a",): 1, ("b",): 9, ("z",): 0})
    assert todo.puts == ((("b",), 2), (("c",), 3))
    assert todo.deletes == (("z",),)
    assert repair({("a",): 1}, {("a",): 1}) == repair({}, {})
