"""The official OpenAI SDK for asyncio, unmodified: answers, streams, and the exception each refusal becomes."""

from __future__ import annotations

import openai
import pytest

from tests.support.gateway_world import ALIAS_NAME, BASE_NAME, gateway_world
from tests.support.scripted_replica import PROMPT_TOKENS, says

pytestmark = pytest.mark.deadline(30)
HELLO = [{"role": "user", "content": "hello"}]


async def test_a_whole_answer() -> None:
    async with gateway_world(says("Good", " day")) as world, world.openai() as client:
        answer = await client.chat.completions.create(model=ALIAS_NAME, messages=HELLO)
        assert answer.choices[0].message.content == "Good day"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.model == ALIAS_NAME
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (PROMPT_TOKENS, 2)


async def test_a_stream_with_usage() -> None:
    async with gateway_world(says("Good", " day")) as world, world.openai() as client:
        stream = await client.chat.completions.create(
            model=ALIAS_NAME, messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "Good day"
        assert [chunk.choices[0].delta.role for chunk in chunks[:-1]] == ["assistant", None, None]
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == PROMPT_TOKENS + 2
        assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


async def test_the_stream_helper_accumulates_the_answer() -> None:
    async with (
        gateway_world(says("Good", " day")) as world,
        world.openai() as client,
        client.chat.completions.stream(model=ALIAS_NAME, messages=HELLO) as stream,  # type: ignore[arg-type]
    ):
        completion = await stream.get_final_completion()
        assert completion.choices[0].message.content == "Good day"


async def test_models() -> None:
    async with gateway_world() as world, world.openai() as client:
        models = {model.id: model.model_extra for model in (await client.models.list()).data}
        assert {name: (extra or {})["parent"] for name, extra in models.items()} == {
            ALIAS_NAME: BASE_NAME,
            BASE_NAME: None,
        }
        assert (await client.models.retrieve(ALIAS_NAME)).id == ALIAS_NAME


async def test_refusals_become_the_right_exceptions() -> None:
    async with gateway_world(says("a")) as world, world.openai() as client:
        create = client.chat.completions.create
        with pytest.raises(openai.NotFoundError) as missing:
            await create(model="globex/sales", messages=HELLO)
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError) as bad:
            await create(model=ALIAS_NAME, messages=HELLO, n=17)
        assert bad.value.param == "n"
        with pytest.raises(openai.BadRequestError) as unsupported:
            await create(model=ALIAS_NAME, messages=HELLO, functions=[{"name": "f"}])
        assert unsupported.value.code == "unsupported_parameter"
    async with gateway_world() as world, world.openai("sk-wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model=ALIAS_NAME, messages=HELLO)
