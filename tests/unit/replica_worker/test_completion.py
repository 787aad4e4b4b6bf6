"""Whole answers for evaluation sets: the text that a client would get, in turn with everybody, or why not."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.replica_worker.control import completion
from services.replica_worker.core.completion import Host, refused
from shared.bus.port import AskFailed
from shared.contracts.catalog import COMPLETE
from shared.messages.completions import CaseOutput, CasePrompt, Complete
from shared.messages.desired import AdapterRecord
from shared.messages.generation import ChatMessage
from shared.store.port import StoreUnavailable
from tests.simulation.speakers import adapter
from tests.support.replica import BASE_HASH, REPLICA_ID, Rig
from tests.support.unruly_engine import UnrulyEngine

HOST = Host(pool_id="pool", base_model_hash=adapter("a").base_model_hash, rank_limit=16)


def prompts(*words: str, max_tokens: int = 6) -> tuple[CasePrompt, ...]:
    return tuple(
        CasePrompt(case=at, messages=(ChatMessage(role="user", content=each),), max_tokens=max_tokens)
        for at, each in enumerate(words)
    )


async def complete(
    replica: Rig, record: AdapterRecord | None, asked: tuple[CasePrompt, ...], base_hash: str = BASE_HASH
) -> tuple[CaseOutput, ...]:
    ask = Complete(base_model_hash=base_hash, record=record, prompts=asked)
    completed = await replica.registry.ask(COMPLETE, ask, REPLICA_ID, timeout_s=20)
    assert completed.replica_id == REPLICA_ID
    return completed.outputs


async def candidate(replica: Rig, name: str = "acme-2") -> AdapterRecord:
    """Stored, and known to nobody but the registry."""
    return await replica.keep(name, status="evaluating")


async def streamed(replica: Rig, request_id: str, record: AdapterRecord | None, word: str) -> str:
    """What a gateway is sent for the same, greedily."""
    request = replica.request(request_id, record, messages=(ChatMessage(role="user", content=word),))
    greedy = msgspec.structs.replace(request.sampling, temperature=0.0)
    return (await replica.caller.run(msgspec.structs.replace(request, sampling=greedy))).text


async def test_a_candidate_that_no_alias_names_says_what_its_customers_would_read(replica: Rig) -> None:
    record = await candidate(replica)
    outputs = await complete(replica, record, prompts("one", "two", "three", "four", "five"))
    assert [(each.case, each.tokens, each.finish, each.error) for each in outputs] == [
        (at, 6, "length", "") for at in range(5)
    ]
    await replica.tell(msgspec.structs.replace(record, status="active"))
    words = ("one", "two", "three", "four", "five")
    assert [each.text for each in outputs] == [await streamed(replica, word, record, word) for word in words]
    assert len({each.text for each in outputs}) == 5


async def test_the_base_answers_as_itself(replica: Rig) -> None:
    (base,) = await complete(replica, None, prompts("one"))
    (adapted,) = await complete(replica, await candidate(replica), prompts("one"))
    assert base.text == await streamed(replica, "r1", None, "one") != adapted.text


async def test_no_more_than_four_prompts_of_a_call_are_in_the_replica_at_once(
    replica: Rig, engine: UnrulyEngine
) -> None:
    engine.hold()
    asking = asyncio.create_task(complete(replica, await candidate(replica), prompts(*"abcdefghi")))
    generation = replica.replica.generation
    await replica.until(lambda: engine.load_figures().waiting + engine.load_figures().running == 4)
    assert generation.open == 4
    most = 0
    while not asking.done():
        engine.allow(1)
        most = max(most, generation.open)
        await asyncio.sleep(0)
    assert most == 4
    assert [each.error for each in await asking] == [""] * 9


async def test_other_customers_are_served_beside_it(replica: Rig, engine: UnrulyEngine) -> None:
    other = await replica.register("acme-1")
    engine.hold()
    asking = asyncio.create_task(complete(replica, await candidate(replica), prompts(*"abcdefgh", max_tokens=200)))
    await replica.until(lambda: engine.load_figures().waiting + engine.load_figures().running == 4)
    heard = await replica.caller.send(replica.request("r1", other, tenant_id="somebody else"))
    await replica.caller.wait(lambda: heard.accepted is not None)
    engine.allow(100)
    await replica.caller.wait(lambda: heard.over)
    assert not asking.done()
    engine.go()
    assert {chunk.request_id for frame in replica.caller.frames for chunk in frame.chunks} == {"r1"}
    await asking


async def test_a_prompt_that_cannot_be_answered_says_so_and_the_others_are_answered(replica: Rig) -> None:
    asked = (*prompts("one"), msgspec.structs.replace(prompts("two")[0], case=7, max_tokens=99_999))
    one, long = await complete(replica, await candidate(replica), asked)
    assert (one.error, one.tokens) == ("", 6)
    assert (long.case, long.finish, long.text) == (7, "refused", "")
    assert "99999 for the answer" in long.error


async def test_what_the_deadline_finds_unanswered_says_so_with_what_came_before(
    replica: Rig, engine: UnrulyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "DEADLINE_S", 0.5)
    engine.hold()
    asking = asyncio.create_task(complete(replica, None, prompts(*"abcdef")))
    await replica.until(lambda: engine.load_figures().waiting + engine.load_figures().running == 4)
    engine.allow(2)
    outputs = await asking
    assert {each.error for each in outputs} == {"It was not answered within 0.5 s."}
    assert [each.tokens for each in outputs] == [2, 2, 2, 2, 0, 0]
    assert any(each.text for each in outputs)
    assert replica.replica.generation.open == 0


@pytest.mark.parametrize("fault", ["the store is away", "a broken copy"])
async def test_an_adapter_that_cannot_be_had_fails_the_call_with_the_reason(
    replica: Rig, engine: UnrulyEngine, fault: str
) -> None:
    record = await candidate(replica)
    if fault == "the store is away":
        replica.store.broken = StoreUnavailable("planted")
    else:
        engine.wrong_weights = True
    with pytest.raises(AskFailed, match="planted" if replica.store.broken else "acme-2"):
        await complete(replica, record, prompts("one", "two"))
    assert replica.replica.loader.slots.table.references == 0


async def test_a_replica_that_drains_takes_no_prompts(replica: Rig) -> None:
    replica.replica.standing.draining = "planted"
    with pytest.raises(AskFailed, match="draining"):
        await complete(replica, None, prompts("one"))


async def test_the_wrong_base_is_refused_over_the_bus(replica: Rig) -> None:
    with pytest.raises(AskFailed, match="The prompts are for base model 000000000000, this replica runs ba5eba5eba5e"):
        await complete(replica, None, prompts("one"), base_hash="0" * 64)


def test_what_cannot_be_applied_here_is_refused_with_both_numbers() -> None:
    record = adapter("a", rank=8)

    def why(record: AdapterRecord | None, host: Host = HOST) -> str:
        return refused(Complete(base_model_hash=HOST.base_model_hash, record=record, prompts=()), host)

    assert why(None) == why(record) == ""
    assert why(msgspec.structs.replace(record, rank=17)) == "a has rank 17, this replica's limit is 16."
    assert "rank 32" in why(msgspec.structs.replace(record, rank_pattern={"q_proj": 32}))
    assert "belongs to base model 000000000000" in why(msgspec.structs.replace(record, base_model_hash="0" * 64))
    merged = msgspec.structs.replace(HOST, only=record.key, rank_limit=1)
    assert why(record, merged) == ""
    assert why(None, merged) == why(adapter("b"), merged) == "This replica serves a alone, merged into its base."
