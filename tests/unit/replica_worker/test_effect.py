"""Whether a slot does what its adapter did: the decision alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.core.effect import (
    Baseline,
    Distribution,
    Indeterminate,
    Mismatch,
    Proven,
    Tolerance,
    change,
    judge,
    measured,
    on_record,
    probe_prompt,
    recorded_digest,
    tolerance_for,
)
from shared.contracts.catalog import ADAPTER
from shared.contracts.codec import decode, encode
from shared.messages.desired import AdapterRecord
from shared.messages.effects import AdapterEffect

BASE = Distribution(finite=True, token_ids=(1, 2, 3), logprobs=(-0.5, -1.5, -3.0))
ADAPTED = Distribution(finite=True, token_ids=(2, 1, 3), logprobs=(-0.4, -1.7, -2.9))
TOLERANCE = Tolerance(absolute=0.05)

LOGPROBS = st.lists(st.floats(-30.0, 0.0), min_size=1, max_size=20)


def on_the_wire(effect: AdapterEffect) -> AdapterEffect:
    """As a replica gets it: within a record."""
    record = AdapterRecord(
        adapter_id="a", digest="d", tenant_id="t", version="1", pool_id="p", base_model_hash="b", rank=8, alpha=16.0,
        target_modules=("q_proj",), size_bytes=1, store_key="k", status="active", effects=(effect,),
    )  # fmt: skip
    return decode(ADAPTER, encode(ADAPTER, record)).effects[0]


def expected(found: Distribution = ADAPTED, base: Distribution = BASE) -> AdapterEffect:
    return on_the_wire(measured("torch-2/float32", found, baseline(base), "f" * 64))


def baseline(base: Distribution = BASE, noise: float = 0.0) -> Baseline:
    return Baseline(dtype="bfloat16", base=base, noise=noise)


def moved(found: Distribution, by: float) -> Distribution:
    return msgspec.structs.replace(found, logprobs=tuple(logprob + by for logprob in found.logprobs))


def test_the_same_distribution_is_proof() -> None:
    assert expected().shift == pytest.approx(1.2)
    assert isinstance(judge(expected(), ADAPTED, TOLERANCE), Proven)
    assert isinstance(judge(expected(), moved(ADAPTED, 0.06), TOLERANCE), Proven), "0.05, and 2 % of the shift"


@pytest.mark.parametrize(
    "found",
    [
        BASE,
        moved(ADAPTED, 0.1),
        Distribution(finite=True, token_ids=(7, 8, 9), logprobs=ADAPTED.logprobs),
        msgspec.structs.replace(ADAPTED, finite=False),
    ],
    ids=["an empty slot", "another effect", "other tokens", "not finite"],
)
def test_another_distribution_is_a_mismatch_with_both_numbers(found: Distribution) -> None:
    verdict = judge(expected(), found, TOLERANCE)
    assert isinstance(verdict, Mismatch)
    assert "differs by" in verdict.reason or "not finite" in verdict.reason


def test_a_shift_that_noise_could_make_proves_nothing() -> None:
    weak = moved(BASE, 0.15)
    verdict = judge(expected(weak), weak, TOLERANCE)
    assert isinstance(verdict, Indeterminate)
    assert "0.15" in verdict.reason
    assert isinstance(judge(expected(weak), ADAPTED, TOLERANCE), Mismatch), "somebody else's is seen all the same"
    assert isinstance(judge(expected(weak), weak, Tolerance(absolute=0.01)), Proven), "on a quieter engine"


def test_noise_that_was_seen_widens_the_tolerance_and_never_narrows_it() -> None:
    assert tolerance_for("float32", 0.0).absolute < tolerance_for("bfloat16", 0.0).absolute
    assert tolerance_for("float32", 0.5).absolute >= 2.0
    assert tolerance_for("auto", 0.0) == tolerance_for("bfloat16", 0.0)


def test_where_the_base_is_the_same_to_the_digit_an_adapter_that_is_almost_alike_is_told_apart() -> None:
    alike = moved(ADAPTED, 0.01)
    here, rounded = baseline(), baseline(moved(BASE, 1e-5))
    assert isinstance(judge(expected(), alike, here.toward(expected())), Mismatch)
    assert isinstance(judge(expected(), ADAPTED, here.toward(expected())), Proven)
    assert isinstance(judge(expected(), alike, rounded.toward(expected())), Proven), "another machine's numbers"
    assert isinstance(judge(expected(), alike, baseline(noise=0.001).toward(expected())), Proven), "a noisy engine"
    unnoted = msgspec.structs.replace(expected(), base_digest="")
    assert isinstance(judge(unnoted, alike, here.toward(unnoted)), Proven)


def test_what_one_side_does_not_list_is_at_most_its_last() -> None:
    one = Distribution(finite=True, token_ids=(1, 2), logprobs=(-0.1, -3.0))
    other = Distribution(finite=True, token_ids=(1, 9), logprobs=(-0.1, -2.9))
    assert change(one, other) == pytest.approx(0.1)


@given(LOGPROBS, LOGPROBS)
def test_a_change_is_the_same_both_ways_and_nothing_between_equals(one: list[float], other: list[float]) -> None:
    a, b = (Distribution(finite=True, token_ids=tuple(range(len(each))), logprobs=tuple(each)) for each in (one, other))
    assert change(a, b) == change(b, a) >= 0.0
    assert change(a, a) == 0.0


@given(st.floats(0.01, 20.0), st.floats(0.0, 0.05))
def test_half_or_twice_the_effect_never_passes_for_the_whole(shift: float, noise: float) -> None:
    """A wrong scale changes the shift by half of it or more, as long as it is measurable at all."""
    tolerance = tolerance_for("bfloat16", noise)
    base = Distribution(finite=True, token_ids=tuple(range(20)), logprobs=tuple(-1.0 - at for at in range(20)))
    effect = expected(moved(base, -shift), base)
    if isinstance(judge(effect, moved(base, -shift), tolerance), Proven):
        assert isinstance(judge(effect, moved(base, -shift / 2), tolerance), Mismatch)
        assert isinstance(judge(effect, moved(base, -shift * 2), tolerance), Mismatch)


@given(st.integers(16, 200_000))
def test_the_prompt_stays_clear_of_both_ends_of_the_vocabulary(size: int) -> None:
    prompt = probe_prompt(size)
    assert 2 <= len(set(prompt)) == len(prompt) <= 4
    assert size // 8 < min(prompt) <= max(prompt) < size - size // 8


def test_only_the_same_build_and_dtype_counts() -> None:
    effects = (expected(), msgspec.structs.replace(expected(), engine="torch-2/bfloat16", shift=9.0))
    assert on_record(effects, "torch-2/bfloat16") == effects[1]
    assert on_record(effects, "vllm-1/bfloat16") is None
    assert recorded_digest("torch-2/float32/abc", "torch-2/float32") == "abc"
    assert recorded_digest("torch-2/float32/abc", "torch-2/bfloat16") == ""
    assert recorded_digest("", "torch-2/float32") == ""
