"""Limits of streams over several gateways, by a ledger on paper."""

from __future__ import annotations

import pytest

from services.gateway.core.allowance import Decision, Demand, Denial, Late, NeedsLease, Pass
from services.gateway.core.allowances import Allowances
from shared.messages.desired import Limits
from tests.unit.gateway.town import POLICY, Town


def test_streams_of_two_gateways_share_one_limit_and_a_place_is_free_at_once() -> None:
    town = Town(2, Limits(streams=2))
    assert isinstance(town.ask(0), Pass)
    assert isinstance(town.ask(1), Pass)
    assert isinstance(town.ask(0), Denial)
    town.settle(town.admitted[1], 1)
    town.now_s += POLICY.denied_s
    assert isinstance(town.ask(0), Pass)


def test_the_streams_of_a_gateway_that_died_come_back() -> None:
    town = Town(2, Limits(streams=2))
    town.ask(0), town.ask(0)
    assert isinstance(town.ask(1), Denial)
    town.gateways[0] = Allowances("another", POLICY)
    town.now_s += POLICY.places_s - 0.1
    assert isinstance(town.ask(1), Denial)
    town.now_s += 0.3
    assert isinstance(town.ask(1), Pass)


def test_streams_that_come_and_go_are_not_told_one_by_one() -> None:
    town = Town(1, Limits(requests_per_min=100_000, tokens_per_min=10_000_000, streams=100))
    for at in range(1_000):
        town.now_s = at * 0.01
        assert isinstance(town.ask(0, 50), Pass)
        town.settle(town.admitted[-1], 40)
        if at % 50 == 0:
            town.turn()
    assert town.sent < 150, "a tenth of the requests, and those who wait are fewer yet"
    assert town.waits < 10


def test_a_stream_that_runs_for_long_keeps_its_place() -> None:
    town = Town(2, Limits(streams=1))
    town.ask(0)
    for _ in range(40):
        town.now_s += 0.5
        town.turn()
    assert isinstance(town.ask(1), Denial)


@pytest.mark.parametrize("alone", [False, True])
def test_each_answer_of_a_request_runs_as_a_stream(alone: bool) -> None:
    """No part of a request gets a place unless all of it does."""
    town = Town(1, Limits(streams=4))
    if alone:
        town.ledger = None
    assert isinstance(town.ask(0, choices=3), Pass)
    denied = town.ask(0, choices=2)
    assert isinstance(denied, Denial)
    assert denied.reason == "The limit of tenant acme, 4 streams at once, is reached, and this request asks for 2."
    assert isinstance(town.ask(0), Pass)
    town.settle(town.admitted[0], 5)
    assert isinstance(town.ask(0, choices=3), Pass)


def test_streams_that_another_gateway_holds_are_taken() -> None:
    town = Town(2, Limits(streams=8))
    assert isinstance(town.ask(0, choices=6), Pass)
    denied = town.ask(1, choices=4)
    assert isinstance(denied, Denial), "two are left, and the own share would be four"
    assert isinstance(town.ask(1, choices=2), Pass)


def test_more_answers_than_streams_are_never_let_in() -> None:
    town = Town(1, Limits(streams=2))
    waits = town.waits
    assert isinstance(town.ask(0, choices=3), Denial)
    assert town.waits == waits, "no ledger has to be asked"


def late(town: Town, at: int, choices: int = 1, what: Late = Late.PLACES) -> Decision:
    demand = Demand(tokens=1, choices=choices)
    return town.gateways[at].admit((town.subject,), demand, town.now_s, alone=False, late=what)


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_a_late_ledger_gives_no_place_that_another_gateway_may_hold(limit: int) -> None:
    town = Town(2, Limits(streams=limit))
    refused = late(town, 1)
    assert isinstance(refused, Denial)
    assert refused.reason.endswith("streams at once, may be reached: whoever counts has not answered in time.")
    assert (refused.kind, refused.retry_after_s) == ("streams", 1.0)


def test_whoever_is_late_for_a_minute_alone_asks_for_the_place_that_is_not_there_any_more() -> None:
    town = Town(2, Limits(requests_per_min=100, streams=3))
    assert late(town, 0, what=Late.MINUTES) == NeedsLease(subjects=("tenant acme",), places=True)
    for _ in range(3):
        assert isinstance(town.ask(1), Pass)
    assert isinstance(town.ask(0), Denial)
    told = late(town, 0, what=Late.MINUTES)
    assert isinstance(told, Denial)
    assert told.reason.endswith("3 streams at once, is reached."), "the ledger has said so a moment ago"


def test_what_the_share_decides_is_no_doubt() -> None:
    """Whoever waited in vain, and hears then that the ledger is away."""
    town = Town(1, Limits(streams=1))
    town.ledger = None
    assert isinstance(town.ask(0), Pass)
    told = town.gateways[0].admit((town.subject,), Demand(tokens=1), 0.0, alone=True, late=Late.PLACES)
    assert isinstance(told, Denial)
    assert told.reason.endswith("1 streams at once, is reached.")


def test_a_late_ledger_leaves_a_gateway_the_places_that_it_holds() -> None:
    town = Town(1, Limits(streams=100))
    assert isinstance(town.ask(0), Pass), "with 5 in advance"
    for _ in range(5):
        assert isinstance(late(town, 0), Pass)
    assert isinstance(late(town, 0), Denial)


def test_whoever_lacks_a_place_is_told_so() -> None:
    town = Town(2, Limits(streams=2, requests_per_min=100))
    demand = Demand(tokens=1)
    lacking = town.gateways[0].admit((town.subject,), demand, 0.0, alone=False)
    assert lacking == NeedsLease(subjects=("tenant acme",), places=True)
    town = Town(2, Limits(requests_per_min=100))
    lacking = town.gateways[0].admit((town.subject,), demand, 0.0, alone=False)
    assert lacking == NeedsLease(subjects=("tenant acme",), places=False)


def test_a_place_that_is_given_back_is_not_taken_while_the_ledger_is_told() -> None:
    """By the time that the answer comes another gateway may have it."""
    town = Town(2, Limits(streams=3))
    for _ in range(3):
        assert isinstance(town.ask(0), Pass)
    gateway, (*_, last) = town.gateways[0], town.admitted
    names = gateway.settle(last[2], 1, town.now_s)
    [said] = gateway.asks(names, town.now_s)
    assert said.streams is not None
    assert (said.streams.used, said.streams.want) == (2, 2)
    assert isinstance(gateway.admit((town.subject,), Demand(tokens=1), town.now_s, alone=False), NeedsLease)
    town.send(gateway, said)
    assert isinstance(town.ask(1), Pass)
    assert isinstance(town.ask(0), Denial)


def test_places_are_held_from_the_question_on_however_late_the_answer_is() -> None:
    """The ledger counts their time from when it was asked."""
    town = Town(2, Limits(streams=100))
    slow, told = town.gateways[0], Demand(tokens=1)
    slow.admit((town.subject,), told, 0.0, alone=False)
    town.exchange(slow, ["tenant acme"])  # who the ledger is
    slow.admit((town.subject,), told, 0.0, alone=False)
    [asked] = slow.asks(["tenant acme"], 0.0)
    town.now_s = 3.9
    town.send(slow, asked)
    assert isinstance(slow.admit((town.subject,), told, 3.9, alone=False), Pass)
    assert isinstance(slow.admit((town.subject,), told, 4.0, alone=False), NeedsLease)
