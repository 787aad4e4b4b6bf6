"""What an alias may mean, and how it moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.registry.core.deployment.alias_moves import decide_deploy, decide_rollback, decide_set, name_fault
from services.registry.core.deployment.aliases import AliasChange, AliasState, Candidate, Change, Denied

ALIAS = "acme/support:prod"
NONE: frozenset[str] = frozenset()
ASKED = Change(actor="ann")


def candidate(adapter_id: str = "v2", **changes: Any) -> Candidate:
    return Candidate(**{"adapter_id": adapter_id, "tenant_id": "acme", "status": "active", **changes})


def state(adapter_id: str = "v1", previous: str | None = None) -> AliasState:
    return AliasState(alias=ALIAS, tenant_id="acme", adapter_id=adapter_id, previous_adapter_id=previous)


def moved(outcome: AliasChange | Denied) -> AliasState:
    assert isinstance(outcome, AliasChange), outcome
    return outcome.state


def denied(outcome: AliasChange | Denied | None) -> Denied:
    assert isinstance(outcome, Denied), outcome
    return outcome


def test_a_new_alias_has_nothing_before_it() -> None:
    outcome = decide_set(None, candidate(), ALIAS, ASKED)
    assert moved(outcome) == state("v2")
    assert outcome.reason == f"{ALIAS} is new and means v2"


def test_a_deploy_remembers_what_it_replaces() -> None:
    assert moved(decide_set(state("v1"), candidate(), ALIAS, ASKED)) == state("v2", "v1")


def test_setting_what_already_is_changes_nothing_and_keeps_the_way_back() -> None:
    again = decide_set(state("v2", "v1"), candidate("v2"), ALIAS, ASKED)
    assert isinstance(again, AliasChange)
    assert (again.state, again.changed) == (state("v2", "v1"), False)


@pytest.mark.parametrize("status", ["registered", "verified", "evaluating", "failed", "retired", "rejected"])
def test_an_alias_means_active_adapters_only(status: str) -> None:
    fault = denied(decide_set(None, candidate(status=status), ALIAS, ASKED))
    assert (fault.kind, fault.code) == ("conflict", "adapter_not_active")
    assert status in fault.message


def test_another_tenants_adapter_is_refused() -> None:
    fault = denied(decide_set(None, candidate(tenant_id="globex"), ALIAS, ASKED))
    assert (fault.kind, fault.code) == ("invalid", "alias_foreign")


@pytest.mark.parametrize(("current", "expected"), [(state("v1"), "v0"), (None, "v1")])
def test_an_alias_that_moved_meanwhile_is_not_moved(current: AliasState | None, expected: str) -> None:
    fault = denied(decide_set(current, candidate(), ALIAS, Change(actor="ann", expected_adapter_id=expected)))
    assert (fault.kind, fault.code, fault.field) == ("conflict", "alias_changed", "expected_adapter_id")


def test_an_alias_that_is_as_expected_is_moved() -> None:
    asked = Change(actor="ann", expected_adapter_id="v1")
    assert moved(decide_set(state("v1"), candidate(), ALIAS, asked)).adapter_id == "v2"


def test_a_rollback_goes_back_and_a_second_one_forth() -> None:
    back = moved(decide_rollback(state("v2", "v1"), candidate("v1"), ASKED))
    assert back == state("v1", "v2")
    assert moved(decide_rollback(back, candidate("v2"), ASKED)) == state("v2", "v1")


def test_there_must_be_something_to_go_back_to() -> None:
    fault = denied(decide_rollback(state("v2", "v1"), candidate("v1", status="retired"), ASKED))
    assert (fault.kind, fault.code) == ("conflict", "adapter_not_active")


def test_a_version_announced_earlier_is_not_deployed_over_a_later_one() -> None:
    late = candidate("v1", registered_at_s=1.0)
    assert denied(decide_deploy(state("v2"), 2.0, late, ALIAS, ASKED)).code == "alias_is_newer"
    assert moved(decide_deploy(state("v0"), 1.0, late, ALIAS, ASKED)).adapter_id == "v1"
    assert moved(decide_deploy(None, 0.0, late, ALIAS, ASKED)).adapter_id == "v1"


def test_c62_the_name_of_a_base_model_is_no_alias() -> None:
    assert denied(name_fault("acme/base", None, frozenset({"acme/base"}))).code == "alias_is_base_model"
    assert denied(name_fault("small-base", None, frozenset({"small-base"}))).code == "alias_is_base_model"


@pytest.mark.parametrize("alias", ["acme/support", "acme/support:prod", "a/b", "acme-2/s.u_p-p:v1.2"])
def test_c62_the_grammar_lets_in(alias: str) -> None:
    assert name_fault(alias, None, NONE) is None


@pytest.mark.parametrize("char", [*", |\"'\\?#%*>\t\n\0ÄA", "\u0430", "\u2044", "\u200d"])
def test_c62_the_grammar_keeps_out(char: str) -> None:
    assert denied(name_fault(f"acme/sup{char}port", None, NONE)).code == "alias_invalid"


@given(st.text(max_size=40))
def test_c62_what_is_let_in_is_plain_lower_case(alias: str) -> None:
    if name_fault(alias, None, NONE) is None:
        assert alias.isascii()
        assert alias == alias.lower()
        assert alias.count("/") == 1
        assert alias.count(":") <= 1
