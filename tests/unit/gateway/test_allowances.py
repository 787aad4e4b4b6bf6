"""Limits over several gateways, by a ledger on paper: what is let in, in every 60 seconds, and what is said of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.core import refusal
from services.gateway.core.allowance import FREE, Demand, Denial, NeedsLease, Pass, Subject
from services.gateway.core.allowance_headers import duration
from services.gateway.core.allowances import Allowances
from services.gateway.core.company import FRESH_S, Company
from shared.messages.desired import Limits
from tests.support.paper_ledger import PaperLedger
from tests.unit.gateway.town import POLICY, Town

steps = st.lists(
    st.tuples(
        st.integers(0, 2), st.floats(0.0, 4.0), st.integers(1, 90), st.floats(0.0, 1.0), st.booleans()
    ),
    max_size=120,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(limit=st.integers(1, 200), steps=steps)
def test_no_minute_holds_more_requests_than_the_limit_and_the_leases(
    limit: int, steps: list[tuple[int, float, int, float, bool]]
) -> None:
    town = Town(3, Limits(requests_per_min=limit))
    for at, passes_s, count, _, turns in steps:
        town.now_s += passes_s
        for _ in range(count):
            town.ask(at)
        if turns:
            town.turn()
    assert town.most_in_a_minute([1] * len(town.admitted)) <= limit * (1 + POLICY.chunk_share)


@settings(max_examples=60, deadline=None)
@given(limit=st.integers(1, 5_000), steps=steps)
def test_no_minute_holds_more_tokens_than_the_limit_and_the_leases(
    limit: int, steps: list[tuple[int, float, int, float, bool]]
) -> None:
    """Answers come to no more than was estimated, and free what they did not take at once."""
    town = Town(3, Limits(tokens_per_min=limit))
    sizes: list[int] = []
    for at, passes_s, tokens, share, turns in steps:
        town.now_s += passes_s
        if isinstance(town.ask(at, tokens * 10), Pass):
            took = int(town.admitted[-1][2].spent[0].estimate * share)
            sizes.append(took)
            town.settle(town.admitted[-1], took)
        if turns:
            town.turn()
    assert town.most_in_a_minute(sizes) <= limit * (1 + POLICY.chunk_share)


@settings(max_examples=60, deadline=None)
@given(asked=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 400), st.integers(0, 900)), max_size=30))
def test_what_was_used_is_what_the_ledger_knows(asked: list[tuple[int, int, int]]) -> None:
    """Estimates, leases, corrections up and down: once all has ended, the sum is that of the real tokens."""
    town = Town(2, Limits(tokens_per_min=20_000))
    real = 0
    for at, estimate, tokens in asked:
        town.now_s += 0.5
        if isinstance(town.ask(at, estimate), Pass):
            real += tokens
            town.settle(town.admitted[-1], tokens)
    town.now_s += POLICY.lease_s + 1.0
    town.turn()
    assert town.ledger is not None
    assert town.ledger.used("tenant acme", "tokens") == real


def test_whoever_asks_steadily_gets_the_whole_limit_and_seldom_waits() -> None:
    town = Town(2, Limits(requests_per_min=1_200))
    for at in range(3_600):
        town.now_s = at * 0.05
        town.ask(at % 2)
        if at % 10 == 0:
            town.turn()
    assert len(town.admitted) > 3_500, "it asks for exactly the limit: 97 % at least are let in"
    assert town.waits < 100, "all but a few find their lease there"


def test_retry_after_is_when_it_is_let_in_and_not_before() -> None:
    town = Town(1, Limits(requests_per_min=3))
    for at_s in (0.0, 10.0, 20.0):
        town.now_s = at_s
        assert isinstance(town.ask(0), Pass)
    town.now_s = 30.0
    denial = town.ask(0)
    assert isinstance(denial, Denial)
    assert denial.kind == "requests"
    assert denial.retry_after_s == pytest.approx(31.0, abs=1.0)
    town.now_s = 30.0 + denial.retry_after_s - 0.1
    assert isinstance(town.ask(0), Denial)
    town.now_s = 30.0 + denial.retry_after_s + 0.3
    assert isinstance(town.ask(0), Pass)


def test_a_denial_in_openais_words() -> None:
    town = Town(1, Limits(requests_per_min=1, tokens_per_min=500))
    town.ask(0, 100)
    denied = town.ask(0, 100)
    assert isinstance(denied, Denial)
    said = refusal.limited(denied)
    assert (said.status, said.type, said.code) == (429, "requests", "rate_limit_exceeded")
    assert said.message == "The limit of tenant acme, 1 requests a minute, is reached. Try again in 61 s."
    assert said.headers == {
        "retry-after": "61", "retry-after-ms": "60600", "x-ratelimit-limit-requests": "1",
        "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m1s",
        "x-ratelimit-limit-tokens": "500", "x-ratelimit-remaining-tokens": "400", "x-ratelimit-reset-tokens": "1m1s",
    }  # fmt: skip


def test_the_tighter_of_a_tenants_and_a_keys_limits_is_told() -> None:
    town = Town(1, Limits(requests_per_min=10))
    key = Subject(name="key k1", limits=Limits(requests_per_min=2))
    gateway = town.gateways[0]
    while isinstance(decision := gateway.admit((town.subject, key), Demand(tokens=1), 0.0, alone=False), NeedsLease):
        town.exchange(gateway, list(decision.subjects))
    assert isinstance(decision, Pass)
    told = gateway.rest(decision, 0.0).headers
    assert told["x-ratelimit-limit-requests"] == "2"
    assert told["x-ratelimit-remaining-requests"] == "1"


def test_a_denial_tells_of_the_limits_of_both_the_tenant_and_the_key() -> None:
    town = Town(1, Limits(requests_per_min=1))
    key = Subject(name="key k1", limits=Limits(tokens_per_min=500))
    gateway, told = town.gateways[0], []
    while len(told) < 2:
        decision = gateway.admit((town.subject, key), Demand(tokens=100), 0.0, alone=False)
        if isinstance(decision, NeedsLease):
            town.exchange(gateway, list(decision.subjects))
        else:
            told.append(gateway.rest(decision, 0.0).headers if isinstance(decision, Pass) else decision)
    admitted, denied = told
    assert isinstance(denied, Denial)
    assert denied.kind == "requests"
    assert denied.headers.keys() == admitted.keys()
    assert denied.headers["x-ratelimit-remaining-requests"] == "0"
    assert denied.headers["x-ratelimit-remaining-tokens"] == "400"


def test_a_refusal_by_one_limit_charges_none() -> None:
    town = Town(1, Limits(requests_per_min=10, streams=1))
    first = town.ask(0)
    assert isinstance(first, Pass)
    for _ in range(5):
        denial = town.ask(0)
        assert isinstance(denial, Denial)
        assert denial.kind == "streams"
    town.settle(town.admitted[0], 1)
    town.now_s += POLICY.lease_s + 1.0
    town.turn()
    assert town.ledger is not None
    assert town.ledger.used("tenant acme", "requests") == 1


def test_without_a_ledger_each_keeps_to_its_share_and_tells_it_later() -> None:
    town = Town(2, Limits(requests_per_min=10, streams=100))
    town.ask(0)
    town.ledger, kept = None, town.ledger
    alone = [isinstance(town.ask(0), Pass) for _ in range(10)]
    assert alone == [True] * 4 + [False] * 6, "five are its share, and one of them it had"
    assert sum(isinstance(town.ask(1), Pass) for _ in range(10)) == 5
    town.ledger = kept
    town.greet()
    town.turn()
    assert town.ledger is not None
    assert town.ledger.used("tenant acme", "requests") == 10
    town.now_s += POLICY.denied_s
    assert isinstance(town.ask(0), Denial)


def test_without_a_ledger_retry_after_is_when_the_share_has_room() -> None:
    town = Town(2, Limits(requests_per_min=4))
    town.ledger = None
    town.ask(0)
    town.now_s = 10.0
    town.ask(0)
    denial = town.ask(0)
    assert isinstance(denial, Denial)
    assert denial.retry_after_s == 51.0
    assert denial.headers["x-ratelimit-remaining-requests"] == "0"
    town.now_s = 61.0
    assert isinstance(town.ask(0), Pass)


def test_a_ledger_that_forgot_is_told_what_the_minute_had() -> None:
    town = Town(2, Limits(requests_per_min=10))
    for _ in range(4):
        town.ask(0), town.ask(1)
    town.ledger = PaperLedger(epoch="another")
    town.greet()
    town.turn()
    assert town.ledger.used("tenant acme", "requests") == 8
    assert [isinstance(town.ask(1), Pass) for _ in range(3)] == [True, True, False]


def test_leases_of_a_ledger_that_forgot_are_worth_nothing() -> None:
    town = Town(1, Limits(requests_per_min=1_000))
    for _ in range(100):
        town.ask(0)
    town.ledger = PaperLedger(epoch="another")
    town.greet()
    more = 0
    while isinstance(town.ask(0), Pass):
        more += 1
    assert more == 900, "what was let in counts, and what was leased does not"


def test_what_comes_back_of_a_long_answer_is_not_there_twice() -> None:
    """It was let in with the whole limit, took nothing of it, and ended half a minute later."""
    town = Town(1, Limits(tokens_per_min=1_000))
    assert isinstance(town.ask(0, 1_000), Pass)
    town.now_s = 30.0
    town.settle(town.admitted[0], 0)
    town.turn()
    town.now_s = 62.0
    assert isinstance(town.ask(0, 1_000), Pass)
    assert isinstance(town.ask(0, 1_000), Denial)


def test_a_limit_that_changes_holds_at_once() -> None:
    town = Town(1, Limits(requests_per_min=100))
    for _ in range(5):
        town.ask(0)
    town.subject = Subject(name="tenant acme", limits=Limits(requests_per_min=5))
    town.now_s += POLICY.lease_s
    assert isinstance(town.ask(0), Denial)
    town.subject = Subject(name="tenant acme", limits=Limits(requests_per_min=6, streams=1))
    assert isinstance(town.ask(0), Pass)
    assert isinstance(town.ask(0), Denial)
    town.subject = Subject(name="tenant acme", limits=Limits(requests_per_min=7, streams=2))
    assert isinstance(town.ask(0), Pass)


def test_nobody_without_limits_is_charged() -> None:
    gateway = Allowances("g", POLICY)
    assert gateway.admit((), Demand(tokens=10), 0.0, alone=False) is FREE
    assert len(gateway) == 0


def test_accounts_that_are_idle_are_forgotten() -> None:
    town = Town(1, Limits(requests_per_min=5, tokens_per_min=500, streams=2))
    town.ask(0, 10)
    town.settle(town.admitted[0], 10)
    for _ in range(500):
        town.now_s += 0.5
        town.turn()
    assert len(town.gateways[0]) == 0


def test_whoever_is_still_answered_is_not_forgotten_and_pays_for_it_all() -> None:
    town = Town(1, Limits(tokens_per_min=500))
    town.ask(0, 10)
    for _ in range(200):
        town.now_s += 1.0
        town.turn()
    town.settle(town.admitted[0], 400)
    for _ in range(2):
        town.turn()
        town.now_s += POLICY.lease_s + 1.0
    assert town.ledger is not None
    assert town.ledger.used("tenant acme", "tokens") == 390, "beyond the estimate, which a minute long ago paid"


def test_a_gateway_that_ends_gives_everything_back_and_takes_nothing_more() -> None:
    town = Town(1, Limits(requests_per_min=1_200, streams=100))
    for _ in range(40):
        town.ask(0)
        town.settle(town.admitted[-1], 1)
    assert town.ledger is not None
    assert town.ledger.used("tenant acme", "requests") > 40, "it has leased ahead"
    for ask in town.gateways[0].partings():
        town.send(town.gateways[0], ask)
    assert town.ledger.used("tenant acme", "requests") == 40
    other = Town(1, Limits(streams=100))
    other.ledger = town.ledger
    assert isinstance(other.ask(0, choices=100), Pass)


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.0, "0ms"), (0.25, "250ms"), (1.0, "1s"), (59.2, "1m0s"), (60.4, "1m1s"), (90.0, "1m30s")]
)
def test_durations_are_told_as_openai_tells_them(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_a_gateway_that_is_silent_is_no_company() -> None:
    company = Company("g0")
    assert company.count(0.0) == 1
    company.heard("g0", 0.0)
    company.heard("g1", 0.0)
    assert company.count(FRESH_S) == 2
    assert company.count(FRESH_S + 0.1) == 1


def test_each_answer_of_a_request_counts_as_a_request() -> None:
    town = Town(2, Limits(requests_per_min=10))
    assert isinstance(town.ask(0, choices=6), Pass)
    denied = town.ask(1, choices=6)
    assert isinstance(denied, Denial)
    assert denied.kind == "requests"
    assert isinstance(town.ask(1, choices=4), Pass)


@pytest.mark.parametrize("alone", [False, True])
def test_whoever_asks_for_more_than_a_minute_has_gets_all_of_one(alone: bool) -> None:
    """Or it would never be let in. What it is told while others have some of it says so."""
    town = Town(1, Limits(requests_per_min=10))
    town.ledger = None if alone else town.ledger
    assert isinstance(town.ask(0), Pass)
    denied = town.ask(0, choices=16)
    assert isinstance(denied, Denial)
    assert denied.reason == (
        "The limit of tenant acme, 10 requests a minute, is reached, and this request asks for all of it."
    )
    town.now_s += denied.retry_after_s + 0.3
    assert isinstance(town.ask(0, choices=16), Pass)
    assert isinstance(town.ask(0), Denial)
