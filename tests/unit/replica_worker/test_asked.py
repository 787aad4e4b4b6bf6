"""Prompts as they stand, and what a request may ask for beside a prompt: on the way to the engine and back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.replica_worker.engine.port import StepToken
from services.replica_worker.engine.shaping import Logprobs
from services.replica_worker.requests.answer_text import AnswerText
from services.replica_worker.requests.running import Running
from shared.messages.generation import ChatMessage, GenerateRequest, Refused
from tests.support.replica import Rig, refused
from tests.support.tiny_model import EOS_TOKEN_ID, VOCABULARY_SIZE


def asking(replica: Rig, **sampling: Any) -> GenerateRequest:
    request = replica.request("r")
    return msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, **sampling))


def raw(replica: Rig, **prompt: Any) -> GenerateRequest:
    return replica.request("r", messages=(), **prompt)


async def refusal(replica: Rig, request: GenerateRequest) -> Refused:
    given = refused(await replica.caller.run(request))
    assert (given.code, given.elsewhere) == ("invalid_request", False)
    return given


async def test_a_raw_prompt_goes_through_no_template(replica: Rig) -> None:
    heard = await replica.caller.run(raw(replica, prompt="hello"))
    assert heard.accepted is not None
    assert heard.accepted.prompt_tokens == len("hello")
    assert heard.finish is not None
    assert heard.finish.usage.prompt_tokens == len("hello")


async def test_control_tokens_that_a_raw_prompt_spells_are_control_tokens(replica: Rig) -> None:
    heard = await replica.caller.run(raw(replica, prompt="<|im_start|>hello"))
    assert heard.accepted is not None
    assert heard.accepted.prompt_tokens == 1 + len("hello")


async def test_token_ids_are_taken_as_they_are_and_answered_like_their_text(replica: Rig) -> None:
    spelled = await replica.caller.run(raw(replica, prompt="hello"))
    request = raw(replica, prompt_token_ids=tuple(replica.tokenizer.encode_text("hello")))
    numbered = await replica.caller.run(msgspec.structs.replace(request, request_id="again"))
    assert numbered.token_ids == spelled.token_ids
    assert numbered.text == spelled.text


@pytest.mark.parametrize("prompt", [{}, {"prompt": ""}])
async def test_without_any_prompt_there_is_nothing_to_go_on_with(replica: Rig, prompt: dict[str, Any]) -> None:
    assert (await refusal(replica, raw(replica, **prompt))).message == "There are no messages and no prompt."


@pytest.mark.parametrize("token_id", [-1, VOCABULARY_SIZE, 2**40])
async def test_a_token_outside_the_vocabulary_is_named(replica: Rig, token_id: int) -> None:
    told = await refusal(replica, raw(replica, prompt_token_ids=(5, token_id)))
    outside = f"{token_id}, which is outside this model's vocabulary of {VOCABULARY_SIZE}."
    assert told.message == f"The prompt has token {outside}"
    biased = msgspec.structs.replace(asking(replica, logit_bias={token_id: 1.0}), request_id="biased")
    told = await refusal(replica, biased)
    assert told.message == f"logit_bias names token {outside}"


@pytest.mark.parametrize("prompt", [{"prompt": "x" * 5000}, {"prompt_token_ids": (5,) * 5000}])
async def test_a_raw_prompt_must_fit_the_context_like_any_other(replica: Rig, prompt: dict[str, Any]) -> None:
    given = refused(await replica.caller.run(raw(replica, **prompt)))
    assert given.code == "context_length_exceeded"
    assert given.message.startswith("The prompt has 5000 tokens;")


@pytest.mark.parametrize("top", [-1, 21])
async def test_more_alternatives_than_anybody_may_ask_for_are_refused(replica: Rig, top: int) -> None:
    told = await refusal(replica, asking(replica, top_logprobs=top))
    assert told.message == f"top_logprobs is {top}, which is outside 0 to 20."


@pytest.mark.parametrize("top", [0, 3])
async def test_every_token_id_comes_with_its_log_probability_and_bytes(replica: Rig, top: int) -> None:
    heard = await replica.caller.run(asking(replica, top_logprobs=top))
    assert heard.token_ids
    for chunk in heard.chunks:
        ends = chunk.finish is not None and chunk.finish.reason == "stop"
        assert tuple(each.token_id for each in chunk.logprobs) == (() if ends else chunk.token_ids)
        for each in chunk.logprobs:
            assert each.raw == replica.tokenizer.token_bytes(each.token_id)
            assert len(each.top) == top
            assert all(one.raw == replica.tokenizer.token_bytes(one.token_id) for one in each.top)


def test_what_ends_the_answer_has_no_log_probability(replica: Rig) -> None:
    running = Running(asking(replica, top_logprobs=1), 0.0, text=AnswerText(replica.tokenizer, ()))
    told = Logprobs(-0.5, (5,), (-0.5,))
    for token_id, finish, count in ((5, None, 1), (EOS_TOKEN_ID, "stop", 0)):
        chunk = running.advance(StepToken("r", token_id, running.produced, finish, logprobs=told))
        assert (chunk.token_ids, len(chunk.logprobs)) == ((token_id,), count)


async def test_unasked_nothing_is_told(replica: Rig) -> None:
    heard = await replica.caller.run(asking(replica, frequency_penalty=1.0))
    assert heard.token_ids
    assert not any(chunk.logprobs for chunk in heard.chunks)


CALL = ChatMessage(role="assistant", content="", tool_calls='[{"function": {"name": "f", "arguments": "{}"}}]')


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tools": '[{"type": "function"}]'}, "This model's chat template knows no tools."),
        ({"messages": (CALL,)}, "This model's chat template knows no calls of tools."),
        ({"tools": "{}"}, "Tools is not a list in JSON: "),
        ({"tools": "[1e999]"}, "Tools is not a list in JSON: Number out of range"),
        ({"tools": "[" * 100_000}, "Tools is not a list in JSON: "),
        ({"messages": (msgspec.structs.replace(CALL, tool_calls="[1"),)}, "Tool_calls is not a list in JSON: "),
    ],
)
async def test_tools_that_cannot_be_shown_to_the_model_are_refused(
    replica: Rig, changes: dict[str, Any], sentence: str
) -> None:
    told = await refusal(replica, replica.request("r", **changes))
    assert told.message.startswith(sentence)


async def test_no_tools_are_no_tools(replica: Rig) -> None:
    assert (await replica.caller.run(replica.request("r", tools="[]"))).finish is not None


async def test_an_engine_without_a_model_follows_no_schema(replica: Rig) -> None:
    told = await refusal(replica, asking(replica, json_schema='{"type": "object"}'))
    assert told.message == "This replica runs no model, so its answers follow no JSON schema."
    assert told.about == "json_schema"
