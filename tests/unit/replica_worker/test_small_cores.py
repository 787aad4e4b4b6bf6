"""Tokens, leases, failures, residency, evaluation, admission: small decisions, each with its reason."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.core.admission import Door, admit
from services.replica_worker.core.evaluation import Distribution, judge
from services.replica_worker.core.failures import FailureMemory, Why
from services.replica_worker.core.leases import GatewayLeases
from services.replica_worker.core.pace import Pace, TurnedAway
from services.replica_worker.core.residency import ResidencyLog
from services.replica_worker.core.tokens import Budget, Promises, Rate, TooLong, fit, retry_after_s
from shared.contracts.catalog import GENERATE, REPLICA_RESIDENCY
from shared.contracts.codec import decode, encode
from shared.messages.generation import GenerateRequest, Sampling
from shared.messages.identity import AdapterKey
from shared.messages.reports import Residency, ResidencyView, fold_residency


def key(number: int) -> AdapterKey:
    return AdapterKey(adapter_id=f"acme-{number}", digest=f"{number:064x}")


@pytest.mark.parametrize(
    ("prompt", "wanted", "found"),
    [(10, 90, 90), (10, None, 90), (99, None, 1), (99, 1, 1), (10, 91, None), (100, None, None), (101, 1, None)],
)
def test_c80_a_prompt_and_its_answer_fit_the_context_or_not(prompt: int, wanted: int | None, found: int | None) -> None:
    budget = fit(prompt, wanted, 100)
    if found is None:
        assert isinstance(budget, TooLong)
        assert "100" in budget.reason
        assert budget.about == ("max_tokens" if prompt < 100 else "prompt")
    else:
        assert budget == Budget(prompt_tokens=prompt, max_tokens=found)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 99))))
def test_promises_add_up_to_nothing_in_the_end(made: list[tuple[str, int]]) -> None:
    promises = Promises()
    for name, tokens in made:
        promises.make(name, tokens)
    assert promises.total == sum(dict(made).values())
    for name in "abcdd":
        promises.end(name)
    assert promises.total == 0


def test_a_rate_halves_in_silence_and_finds_the_true_one() -> None:
    rate = Rate(half_life_s=2.0)
    for step in range(4_000):
        rate.add(1.0, step * 0.01)
    assert rate.per_s(39.99) == pytest.approx(100.0, rel=0.02)
    assert rate.per_s(41.99) == pytest.approx(50.0, rel=0.02)


@pytest.mark.parametrize(
    ("tokens", "rate", "wait_s"), [(500, 0.0, 1.0), (10, 100.0, 1.0), (500, 100.0, 5.0), (9_999, 1.0, 30.0)]
)
def test_the_wait_is_what_the_queue_takes(tokens: int, rate: float, wait_s: float) -> None:
    assert retry_after_s(tokens, rate) == wait_s


def test_a_pace_is_assumed_and_then_measured_though_fetches_that_run_at_once_end_in_bunches() -> None:
    pace = Pace(assumed_bytes_per_s=200.0)
    assert pace.wait_s(1_000) == 5.0
    found = []
    for bunch in range(100):
        for _ in range(4):
            pace.began(bunch * 8.0)
        for _ in range(4):
            pace.ended(100, bunch * 8.0 + 8.0)
            found.append(pace.wait_s(1_000))
    assert all(wait_s == pytest.approx(20.0, rel=0.12) for wait_s in found[-40:]), "50 bytes a second"


def test_neither_idle_time_nor_a_fetch_that_fails_makes_a_store_slower() -> None:
    pace = Pace(assumed_bytes_per_s=100.0)
    for at_s in (0.0, 1_000.0, 2_000.0):
        pace.began(at_s)
        pace.ended(100, at_s + 1.0)
    assert pace.wait_s(100) == pytest.approx(1.0)
    for at_s in (3_000.0, 4_000.0):
        pace.began(at_s)
        pace.ended(0, at_s + 60.0)
    pace.began(5_000.0)
    pace.ended(100, 5_001.0)
    assert pace.wait_s(100) == pytest.approx(1.0)


def test_those_turned_away_are_told_to_come_one_after_another_and_the_wait_passes() -> None:
    away = TurnedAway()
    for _ in range(3):
        away.add(2.0, 10.0)
    assert (away.wait_s(10.0), away.wait_s(13.0), away.wait_s(99.0)) == (6.0, 3.0, 0.0)
    away.add(2.0, 13.0)
    assert away.wait_s(13.0) == 5.0
    for _ in range(100_000):
        away.add(2.0, 20.0)
    assert away.wait_s(20.0 + 600.0) == 0.0, "a client that comes again and again burdens nobody for hours"


@pytest.mark.parametrize(
    ("wait_s", "before_s", "retry_s"),
    [(0.0, 0.0, None), (48.0, 99.0, None), (48.5, 0.0, 1.0), (53.0, 0.0, 5.0), (53.0, 4.0, 9.0), (900.0, 0.0, 30.0)],
)
def test_a_fetch_that_would_take_longer_than_the_client_waits_is_refused_with_an_honest_retry(
    wait_s: float, before_s: float, retry_s: float | None
) -> None:
    door = msgspec.structs.replace(DOOR, fetch_wait_s=wait_s, turned_away_wait_s=before_s)
    refusal = admit(msgspec.structs.replace(REQUEST, deadline_s=60.0), door)
    assert (refusal.retry_after_s if refusal else None) == retry_s
    assert refusal is None or (refusal.code, refusal.elsewhere) == ("overloaded", True)


def test_a_lease_ends_after_silence_and_is_told_once() -> None:
    leases = GatewayLeases(silence_s=3.0)
    leases.heard("g1", 0.0)
    leases.heard("g2", 2.0)
    assert leases.take_lapsed(3.0) == ()
    assert leases.take_lapsed(3.1) == ("g1",)
    assert leases.take_lapsed(4.0) == ()
    leases.renew_all(9.0)
    assert leases.take_lapsed(12.0) == ()
    assert leases.take_lapsed(12.1) == ("g2",)


def test_a_gateway_that_comes_back_is_noticed_and_one_that_does_not_is_forgotten() -> None:
    leases = GatewayLeases(silence_s=3.0, keep_s=60.0)
    assert not leases.heard("g1", 0.0)
    leases.heard("g2", 0.0)
    assert leases.take_lapsed(5.0) == ("g1", "g2")
    assert leases.heard("g1", 6.0)
    assert not leases.heard("g1", 7.0)
    assert leases.take_gone(65.0) == ()
    assert leases.take_gone(65.1) == ("g2",)
    assert leases.take_gone(99.0) == ()


def test_failures_are_tried_again_less_and_less_often() -> None:
    memory = FailureMemory(first_s=1.0, final_first_s=30.0, longest_s=100.0)
    waits = []
    now_s = 0.0
    for _ in range(4):
        failure = memory.record(key(1), Why(reason="corrupt", final=True), now_s)
        waits.append(failure.retry_at_s - now_s)
        assert memory.blocking(key(1), failure.retry_at_s - 0.1) == failure
        assert memory.blocked(now_s) == {key(1)}
        now_s = failure.retry_at_s
        assert memory.blocking(key(1), now_s) is None
    assert waits == [30.0, 60.0, 100.0, 100.0]
    memory.forgive(key(1))
    assert memory.record(key(1), Why(reason="store away", final=False), 0.0).retry_at_s == 1.0


def on_the_wire(message: Residency) -> Residency:
    return decode(REPLICA_RESIDENCY, encode(REPLICA_RESIDENCY, message))


TIERS = st.dictionaries(st.integers(0, 9), st.sampled_from(["gpu", "ram", "disk", "remote"]), max_size=10)


@given(st.lists(st.tuples(TIERS, st.booleans()), max_size=12))
def test_whoever_folds_what_is_told_knows_the_tiers(turns: list[tuple[dict[int, str], bool]]) -> None:
    log = ResidencyLog("replica-1", "i1", "pool", entries_per_message=3)
    view = ResidencyView()
    truth: dict[AdapterKey, str] = {}
    for changed, snapshot in turns:
        truth.update({key(number): tier for number, tier in changed.items()})
        held = {each: tier for each, tier in truth.items() if tier != "remote"}
        messages = log.snapshot(held) if snapshot else log.changes({key(n): t for n, t in changed.items()})
        for message in messages:
            view = fold_residency(view, on_the_wire(message))
        assert dict(view.tiers) == held
    sequence = log.changes({key(99): "gpu"})[0].sequence
    assert sequence == view.sequence + 1


def test_a_change_that_is_none_is_not_told() -> None:
    log = ResidencyLog("replica-1", "i1", "pool")
    assert len(log.changes({key(1): "gpu"})) == 1
    assert log.changes({key(1): "gpu", key(2): "remote"}) == []
    assert log.changes({key(1): "remote"})[0].entries[0].tier == "remote"


def test_a_snapshot_of_20000_adapters_fits_its_messages() -> None:
    log = ResidencyLog("replica-1", "i1", "pool")
    tiers = {AdapterKey(adapter_id=f"{n:0128}", digest="f" * 64): "disk" for n in range(20_000)}
    parts = log.snapshot(tiers)
    assert [part.part for part in parts] == list(range(10))
    assert max(len(encode(REPLICA_RESIDENCY, part)) for part in parts) < 1 << 20
    assert log.snapshot({})[0].entries == ()


def spread(*logprobs: float, first: int = 5, finite: bool = True) -> Distribution:
    ids = tuple(range(first, first + len(logprobs)))
    return Distribution(finite=finite, token_ids=ids, logprobs=logprobs)


def test_c08_an_adapter_without_effect_fails_its_evaluation() -> None:
    verdict = judge([(spread(-0.1, -2.0), spread(-0.1, -2.0005))] * 3)
    assert (verdict.passed, verdict.reason) == (
        False, "no effect: over 3 prompts no log probability changes by more than 0.001",
    )  # fmt: skip
    assert verdict.largest_change == pytest.approx(0.0005)


def test_one_measurable_difference_passes() -> None:
    same = (spread(-0.1, -2.0), spread(-0.1, -2.0))
    assert judge([same, (spread(-0.1, -2.0), spread(-0.1, -2.1))]).passed
    assert judge([same, (spread(-0.1), spread(-0.1, first=9))]).passed


@pytest.mark.parametrize("broken", [0, 1])
def test_what_is_not_finite_fails(broken: int) -> None:
    pair = [spread(-0.1), spread(-3.0)]
    pair[broken] = spread(-0.1, finite=False)
    verdict = judge([(spread(-0.1), spread(-3.0)), (pair[0], pair[1])])
    assert (verdict.passed, verdict.reason) == (False, "an output with this adapter is not finite")


REQUEST = GenerateRequest(
    request_id="r1", gateway_id="g1", tenant_id="acme", pool_id="pool", base_model_hash="base", messages=(),
    sampling=Sampling(seed=1), adapter_id="acme-1", digest="0" * 64,
)  # fmt: skip
DOOR = Door(
    pool_id="pool", base_model_hash="base", not_ready="", draining=False, waiting=0, queue_limit=4,
    tokens_in_flight=0, tokens_per_s=0.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("door", "request_", "code", "elsewhere"),
    [
        ({"not_ready": "the engine is starting"}, {}, "not_ready", True),
        ({"draining": True}, {}, "draining", True),
        ({}, {"pool_id": "other"}, "wrong_pool", True),
        ({}, {"base_model_hash": "other"}, "wrong_pool", True),
        ({}, {"digest": None}, "invalid_request", False),
        ({"waiting": 4}, {}, "overloaded", True),
    ],
)
def test_the_door_says_why(door: dict[str, object], request_: dict[str, object], code: str, elsewhere: bool) -> None:
    request = decode(GENERATE, encode(GENERATE, msgspec.structs.replace(REQUEST, **request_)))
    refusal = admit(request, msgspec.structs.replace(DOOR, **door))
    assert refusal is not None
    assert (refusal.code, refusal.elsewhere) == (code, elsewhere)
    assert refusal.reason.endswith(".")


def test_the_door_is_open() -> None:
    assert admit(REQUEST, DOOR) is None
    assert admit(msgspec.structs.replace(REQUEST, adapter_id=None, digest=None), DOOR) is None
