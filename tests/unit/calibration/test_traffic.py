"""A workload's calls become requests whose prompts have about the wanted length and share no beginning."""

from __future__ import annotations

from loadtest.calibration.measuring import calibration_traffic
from loadtest.calibration.stage import Customer
from loadtest.calibration.traffic import (
    ALONE_EACH,
    ALONE_TOKENS,
    BESIDE,
    VOLLEY,
    Tokenizing,
    asks,
    beside_others,
    each_once,
    one_by_one,
    volley,
)
from loadtest.workloads.calls import calls
from shared.messages.desired import AdapterRecord

TOKENIZING = Tokenizing(tokens=19.0, characters_per_token=1.0)
CUSTOMERS = [
    Customer(
        alias=f"customer-{at}/voice:prod",
        key=f"key-{at}",
        record=AdapterRecord(
            adapter_id=f"a{at}", digest="d", tenant_id="t", version="1", pool_id="p", base_model_hash="b", rank=8,
            alpha=8.0, target_modules=(), size_bytes=1, store_key="s", status="active",
        ),
    )
    for at in range(3)
]  # fmt: skip
SHAPE = calibration_traffic(customers=3, rate_per_s=5.0, for_s=10.0)


def test_every_call_is_asked_at_its_time_for_its_customer() -> None:
    asked, called = asks(SHAPE, CUSTOMERS, TOKENIZING, "run"), list(calls(SHAPE))
    assert [(ask.at_s, ask.adapter, ask.max_tokens) for ask in asked] == [
        (call.at_s, call.tenant, call.output_tokens) for call in called
    ]
    assert all(ask.key == f"key-{ask.adapter}" for ask in asked)
    long = [(ask, call) for ask, call in zip(asked, called, strict=True) if call.prompt_tokens > 20]
    assert all(len(ask.prompt) + 19 == call.prompt_tokens for ask, call in long)


def test_no_prompt_begins_like_another_in_this_run_or_the_next() -> None:
    prompts = [ask.prompt for run in ("one", "two") for ask in asks(SHAPE, CUSTOMERS, TOKENIZING, run)]
    beginnings = [prompt[:12] for prompt in prompts if len(prompt) >= 12]
    assert len(set(beginnings)) == len(beginnings)


def test_request_ids_are_one_runs_alone() -> None:
    ids = [ask.request_id for run in ("one", "two") for ask in asks(SHAPE, CUSTOMERS, TOKENIZING, run)]
    assert len(set(ids)) == len(ids)


def test_everybody_is_asked_once_and_one_after_the_other() -> None:
    assert [ask.adapter for ask in each_once(CUSTOMERS, "first")] == [0, 1, 2]
    alone = one_by_one(CUSTOMERS, TOKENIZING, "alone")
    assert [len(ask.prompt) + 19 for ask in alone] == list(ALONE_TOKENS) * ALONE_EACH
    assert {ask.key for ask in alone} == {"key-0", "key-1", "key-2"}


def test_a_volley_is_one_moment_and_everybodys() -> None:
    asked = [*volley(CUSTOMERS, TOKENIZING, "one"), *volley(CUSTOMERS, TOKENIZING, "two")]
    assert {ask.at_s for ask in asked} == {0.0}
    assert {(ask.adapter, ask.key) for ask in asked} == {(at, f"key-{at}") for at in range(3)}
    assert len({ask.request_id for ask in asked}) == len({ask.prompt for ask in asked}) == 2 * VOLLEY


def test_another_customer_asks_while_long_answers_are_given() -> None:
    for run, (tokens, others) in enumerate(BESIDE * 3):
        *given, question = beside_others(CUSTOMERS, TOKENIZING, f"run-{run}", tokens, others)
        assert len(given) == min(others, len(CUSTOMERS) - 1)
        assert len(question.prompt) + 19 == tokens
        assert len({ask.key for ask in [*given, question]}) == len(given) + 1
        assert max(ask.at_s for ask in given) < question.at_s
        assert min(ask.max_tokens for ask in given) > 10 * question.max_tokens


def test_a_prompt_is_never_empty() -> None:
    assert TOKENIZING.characters(1) == 1
    assert Tokenizing(tokens=20.0, characters_per_token=4.0).characters(120) == 400
