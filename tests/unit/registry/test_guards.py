"""When a guard takes an alias back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.registry.core.deployment.guards import (
    Guard,
    Observed,
    breach,
    guard_fault,
    has_held,
    judge_probe,
    window_begins_s,
)
from shared.messages.effects import AdapterEffect
from shared.messages.operations import Fingerprint

EFFECT = AdapterEffect(engine="torch-1/bfloat16", token_ids=(1,), logprobs=(-1.0,), shift=0.5, slot_digest="f1")


def probed(**changes: Any) -> Fingerprint:
    effect = msgspec.structs.replace(EFFECT, **changes)
    return Fingerprint(
        adapter_id="v2", digest="d", replica_id="r0", fingerprint="torch-1/bfloat16/f1", engine_build="torch-1",
        effect=effect,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("guard", "says"),
    [
        ({}, "A guard needs a condition"),
        ({"max_error_rate": 1.0}, "max_error_rate is 1.0"),
        ({"max_error_rate": -0.1}, "max_error_rate is -0.1"),
        ({"max_error_rate": float("nan")}, "max_error_rate is nan"),
        ({"max_ttft_p95_ms": 0}, "max_ttft_p95_ms is 0"),
        ({"probe": True, "window_s": -1}, "window_s is -1"),
        ({"probe": True, "hold_s": float("inf")}, "hold_s is inf"),
        ({"probe": True, "minimum_requests": 0}, "minimum_requests is 0"),
    ],
)
def test_a_guard_that_could_not_act_is_a_fault(guard: dict[str, Any], says: str) -> None:
    fault = guard_fault(Guard(**guard))
    assert fault is not None
    assert fault.startswith(says)


@given(st.integers(0, 1_000), st.integers(1, 1_000), st.floats(0.0, 0.99), st.integers(1, 1_000))
def test_errors_count_over_the_stated_share_and_from_the_stated_number_on(
    errors: int, requests: int, allowed: float, minimum: int
) -> None:
    errors = min(errors, requests)
    guard = Guard(max_error_rate=allowed, minimum_requests=minimum)
    reason = breach(guard, Observed(requests=requests, errors=errors))
    assert (reason is not None) == (requests >= minimum and errors / requests > allowed)


def test_what_is_not_a_condition_is_not_judged() -> None:
    bad = Observed(requests=100, errors=100, ttft_p95_ms=1e6)
    assert breach(Guard(probe=True), bad) is None
    assert breach(Guard(max_ttft_p95_ms=5.0), Observed(requests=100, errors=100)) is None
    assert breach(Guard(max_error_rate=0.9), Observed(requests=100, ttft_p95_ms=1e6)) is None
    assert breach(Guard(probe=True), Observed(trouble="it is failed: gone")) == "it is failed: gone"


def test_a_slot_is_compared_with_what_was_evaluated_on_the_same_engine_only() -> None:
    other = msgspec.structs.replace(EFFECT, engine="vllm-1/bfloat16", slot_digest="f9")
    assert judge_probe(probed(), (other, EFFECT)) == ""
    assert judge_probe(probed(slot_digest="f2"), (other, EFFECT)) == (
        "the slot on r0 holds f2, evaluated was f1 (torch-1/bfloat16)"
    )
    assert judge_probe(probed(slot_digest="f2"), (other,)) == ""
    assert judge_probe(msgspec.structs.replace(probed(), effect=None), (EFFECT,)) == ""


def test_the_window_begins_at_the_change_at_the_earliest() -> None:
    guard = Guard(probe=True, window_s=60.0, hold_s=600.0)
    assert [window_begins_s(guard, 100.0, now_s) for now_s in (100.0, 130.0, 200.0)] == [100.0, 100.0, 140.0]
    assert [has_held(guard, 100.0, now_s) for now_s in (100.0, 699.9, 700.0)] == [False, False, True]
