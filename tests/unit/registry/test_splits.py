"""Two versions behind one alias: what may be split, and how it ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.registry.core.deployment.alias_moves import decide_set
from services.registry.core.deployment.aliases import AliasChange, AliasState, Candidate, Change, Denied
from services.registry.core.deployment.guards import Guard
from services.registry.core.deployment.splits import Wish, decide_promote, decide_split, decide_unsplit

ALIAS = "acme/support:prod"
ASKED = Change(actor="ann")
GUARD = Guard(max_error_rate=0.1)
WHOLE = AliasState(alias=ALIAS, tenant_id="acme", adapter_id="v1", previous_adapter_id="v0", revision=3)
SPLIT = msgspec.structs.replace(WHOLE, split_adapter_id="v2", split_percent=10.0, split_salt="s1", guard=GUARD)


def candidate(adapter_id: str = "v2", **changes: Any) -> Candidate:
    return Candidate(**{"adapter_id": adapter_id, "tenant_id": "acme", "status": "active", **changes})


def wish(percent: float = 10.0, salt: str = "s1", **changes: Any) -> Wish:
    return Wish(candidate=candidate(**changes), percent=percent, salt=salt)


def becomes(outcome: AliasChange | Denied) -> AliasState:
    assert isinstance(outcome, AliasChange), outcome
    return outcome.state


def code(outcome: AliasChange | Denied) -> str:
    assert isinstance(outcome, Denied), outcome
    return outcome.code


def test_a_split_begins_beside_what_the_alias_means() -> None:
    asked = msgspec.structs.replace(ASKED, guard=GUARD)
    assert becomes(decide_split(WHOLE, wish(), asked)) == SPLIT


def test_the_salt_and_the_guard_stay_while_the_percentage_changes() -> None:
    grown = becomes(decide_split(SPLIT, wish(50.0, salt="s2"), ASKED))
    assert grown == msgspec.structs.replace(SPLIT, split_percent=50.0)


def test_the_same_split_again_changes_nothing() -> None:
    again = decide_split(SPLIT, wish(), ASKED)
    assert isinstance(again, AliasChange)
    assert not again.changed


@pytest.mark.parametrize(
    ("asked_for", "expected"),
    [
        (wish(-1.0), "percent_invalid"),
        (wish(100.1), "percent_invalid"),
        (wish(float("nan")), "percent_invalid"),
        (wish(tenant_id="globex"), "alias_foreign"),
        (wish(adapter_id="v1"), "split_same"),
        (wish(status="retired"), "adapter_not_active"),
        (wish(adapter_id="v3"), "alias_split"),
    ],
)
def test_what_may_not_be_split(asked_for: Wish, expected: str) -> None:
    assert code(decide_split(SPLIT, asked_for, ASKED)) == expected


def test_promoting_makes_the_version_the_alias_and_keeps_the_way_back_and_the_guard() -> None:
    assert becomes(decide_promote(SPLIT, candidate(), ASKED)) == AliasState(
        alias=ALIAS, tenant_id="acme", adapter_id="v2", previous_adapter_id="v1", revision=3, guard=GUARD
    )
    assert code(decide_promote(WHOLE, candidate(), ASKED)) == "alias_not_split"
    assert code(decide_promote(SPLIT, candidate(status="failed"), ASKED)) == "adapter_not_active"


def test_unsplitting_leaves_what_the_alias_meant_and_no_guard() -> None:
    assert becomes(decide_unsplit(SPLIT, ASKED)) == WHOLE
    assert code(decide_unsplit(WHOLE, ASKED)) == "alias_not_split"


@pytest.mark.parametrize("asked", [Change(actor="ann", if_match=2), Change(actor="ann", expected_adapter_id="v9")])
def test_who_is_late_changes_nothing(asked: Change) -> None:
    late = (
        decide_split(SPLIT, wish(50.0), asked),
        decide_promote(SPLIT, candidate(), asked),
        decide_unsplit(SPLIT, asked),
    )
    assert [code(outcome) for outcome in late] == ["alias_changed"] * 3


def test_a_deployment_ends_a_split_by_force_only_and_the_way_back_stays_right() -> None:
    forced = msgspec.structs.replace(ASKED, force=True)
    assert code(decide_set(SPLIT, candidate("v3"), ALIAS, ASKED)) == "alias_split"
    ended = becomes(decide_set(SPLIT, candidate("v3"), ALIAS, forced))
    assert (ended.adapter_id, ended.previous_adapter_id, ended.named) == ("v3", "v1", {"v3"})
    back = becomes(decide_set(SPLIT, candidate("v1"), ALIAS, forced))
    assert (back.adapter_id, back.previous_adapter_id, back.named) == ("v1", "v0", {"v1"})
