"""The states of an adapter, their deadlines, and a person's word against an evaluation."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from services.registry.core import lifecycle
from services.registry.core.deployment.aliases import Denied
from services.registry.core.gating.overrides import Override, decide_override
from services.registry.core.lifecycle import IllegalMove, Move
from services.registry.core.records import StoredAdapter, after_move, registered
from shared.messages.adapters import STATES
from shared.messages.operations import Evaluation
from tests.support.adapter_files import announcement, file_of

WISH = Override(by="ada", reason="checked by hand")
MEASURED = Evaluation(
    adapter_id="v1", digest="d", replica_id="r", passed=False, reason="no effect", fingerprint="b/bfloat16/f1"
)


def test_every_edge_of_a_good_adapters_way_has_a_deadline_until_it_is_active() -> None:
    begun = lifecycle.begin(None, 5.0, 60.0)
    verified = lifecycle.verify("every check passed", 6.0, 600.0)
    assert [(step.state, step.at_s, step.deadline_s) for step in (begun, verified)] == [
        ("registered", 5.0, 65.0),
        ("verified", 6.0, 606.0),
    ]
    for current, target in itertools.pairwise(["verified", "evaluating", "active", "retired"]):
        assert lifecycle.move(current, target, "why", 6.0) == Move(state=target, reason="why", at_s=6.0)


def test_a_rejected_announcement_may_be_corrected() -> None:
    assert lifecycle.begin("rejected", 1.0, 1.0).state == "registered"
    assert lifecycle.move("registered", "rejected", "still wrong", 2.0).state == "rejected"


def test_what_has_ended_stays_ended() -> None:
    for ended, target in itertools.product(["failed", "retired"], STATES):
        with pytest.raises(IllegalMove, match=f"{ended} cannot become {target}"):
            lifecycle.move(ended, target, "", 0.0)


def test_no_state_is_skipped() -> None:
    legal = {
        (None, "registered"), ("registered", "verified"), ("registered", "rejected"), ("registered", "failed"),
        ("rejected", "registered"), ("verified", "evaluating"), ("verified", "failed"), ("evaluating", "active"),
        ("evaluating", "failed"), ("active", "retired"), ("active", "failed"),
    }  # fmt: skip
    for current, target in itertools.product([None, *STATES], STATES):
        if (current, target) not in legal:
            with pytest.raises(IllegalMove):
                lifecycle.move(current, target, "", 0.0)
        else:
            assert lifecycle.move(current, target, "", 0.0).state == target


@pytest.mark.parametrize("status", lifecycle.UNDER_WAY)
def test_whatever_is_under_way_can_run_out_of_time_and_says_what_stood_in_the_way(status: str) -> None:
    step = lifecycle.expire(status, "nobody is ready", 9.0)
    assert (step.state, step.reason.endswith("before its deadline: nobody is ready")) == ("failed", True)


@pytest.mark.parametrize("status", ["active", "failed", "retired", "rejected"])
def test_whatever_has_ended_has_no_deadline(status: str) -> None:
    assert status not in lifecycle.UNDER_WAY


def test_retiring_waits_until_no_alias_means_it() -> None:
    refused = lifecycle.decide_retire("v1", "active", ["acme/a", "acme/b"], 1.0)
    assert isinstance(refused, Denied)
    assert (refused.code, "acme/a, acme/b" in refused.message) == ("adapter_in_use", True)
    assert isinstance(lifecycle.decide_retire("v1", "active", [], 1.0), Move)


@pytest.mark.parametrize("status", ["verified", "evaluating", "failed", "rejected", "retired"])
def test_only_an_active_adapter_is_retired(status: str) -> None:
    assert isinstance(lifecycle.decide_retire("v1", status, [], 1.0), Denied)


# -- overrides -----------------------------------------------------------------------------------------


def story(*states: str) -> tuple[StoredAdapter, list[Move]]:
    history = [Move(state=state, reason="why", at_s=1.0) for state in states]
    adapter = registered(announcement(file_of(), adapter_id="v1"), history[0])
    return after_move(adapter, history[-1]), history


EVALUATED = ("registered", "verified", "evaluating", "failed")


def denied(*states: str, measured: Evaluation | None = MEASURED, wish: Override = WISH) -> str:
    step = decide_override(*story(*states), measured, wish, 9.0)
    assert isinstance(step, Denied)
    return step.code


@pytest.mark.parametrize("states", [EVALUATED, EVALUATED[:-1]])
def test_an_evaluation_is_overridden_by_name(states: tuple[str, ...]) -> None:
    step = decide_override(*story(*states), MEASURED, WISH, 9.0)
    assert step == Move(state="active", reason="overridden: checked by hand", at_s=9.0, actor="ada")


def test_an_override_needs_a_reason_and_a_name() -> None:
    assert denied(*EVALUATED, wish=Override(by="ada", reason=" why not   ")) == "reason_missing"
    for by in (" ", "a" * 129):
        assert denied(*EVALUATED, wish=Override(by=by, reason="checked by hand")) == "actor_missing"


def test_only_the_result_of_an_evaluation_is_overridden() -> None:
    assert denied("registered", "rejected") == "nothing_to_override"
    assert denied("registered", "verified") == "nothing_to_override"
    assert denied("registered", "failed") == "nothing_to_override"
    assert denied("registered", "verified", "evaluating", "active", "failed") == "nothing_to_override"


def test_what_is_not_finite_or_was_never_measured_is_not_overridden() -> None:
    assert denied(*EVALUATED, measured=msgspec.structs.replace(MEASURED, finite=False)) == "not_finite"
    assert denied(*EVALUATED, measured=msgspec.structs.replace(MEASURED, fingerprint="")) == "never_measured"
    assert denied(*EVALUATED, measured=None) == "never_measured"
