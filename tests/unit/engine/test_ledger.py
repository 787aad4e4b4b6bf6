"""What the event loop's side of an engine knows at the moment of a call."""

from __future__ import annotations

import msgspec
import pytest

from services.replica_worker.engine.ledger import Ledger
from services.replica_worker.engine.port import BASE_SLOT, StepToken
from services.replica_worker.engine.sequence import Sequence
from tests.support.paper_engine import INFO
from tests.support.token_log import greedy

SMALL = msgspec.structs.replace(INFO, kv_tokens=64)


def test_a_slot_has_the_digest_that_was_filled_in_last() -> None:
    ledger = Ledger(INFO)
    assert ledger.digest_of(BASE_SLOT) == ""
    ledger.fill(0, "version 1")
    ledger.fill(0, "version 2")
    assert ledger.digest_of(0) == "version 2"
    assert [ledger.empty(0), ledger.empty(0)] == ["version 2", None]
    with pytest.raises(KeyError):
        ledger.digest_of(0)


def test_only_a_filled_slot_takes_requests_and_only_a_slot_without_them_is_written() -> None:
    ledger = Ledger(INFO)
    request = greedy("a", [5] * 4, slot=0)
    assert ledger.refusal(request) == "slot 0 holds no adapter"
    ledger.fill(0, "d")
    assert ledger.refusal(request) is None
    ledger.open(Sequence(request, "d"))
    with pytest.raises(ValueError, match="has 1 requests"):
        ledger.check_writable(0)
    assert ledger.tokens_in_flight == 4 + request.max_tokens
    ledger.close("a")
    ledger.check_writable(0)
    assert ledger.tokens_in_flight == 0


@pytest.mark.parametrize(
    ("length", "max_tokens", "why"),
    [
        (40, 24, None),
        (40, 25, "prompt and answer of 65 tokens never fit the KV cache of 64"),
        (65, 1, "prompt and answer of 66 tokens never fit the KV cache of 64"),
        (10, 10**9, "prompt and answer of 200 tokens never fit the KV cache of 64"),
    ],
)
def test_what_never_fits_the_cache_is_refused_with_both_numbers(length: int, max_tokens: int, why: str | None) -> None:
    assert Ledger(SMALL).refusal(greedy("a", [5] * length, max_tokens=max_tokens)) == why


def test_a_cache_without_a_limit_of_its_own_refuses_nothing() -> None:
    assert Ledger(INFO).refusal(greedy("a", [5] * 100, max_tokens=10**9)) is None


def test_c23_a_token_of_an_earlier_request_of_the_same_name_is_not_delivered() -> None:
    ledger = Ledger(INFO)
    former, current = (Sequence(greedy("a", [5])) for _ in range(2))
    ledger.open(former)
    ledger.close("a")
    ledger.open(current)
    assert not ledger.settle(former, StepToken("a", 7, 0, finish="length"))
    assert ledger.settle(current, StepToken("a", 7, 0, finish="length"))
    assert ledger.live == {}
