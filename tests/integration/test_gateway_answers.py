"""The good path through a real HTTP server: streamed, whole, and what stands around the answer."""

from __future__ import annotations

import json

from tests.support.gateway_world import ADAPTER, ALIAS_NAME, body, gateway_world
from tests.support.scripted_replica import PROMPT_TOKENS, says

PATH = "/v1/chat/completions"


async def test_a_whole_answer() -> None:
    async with gateway_world(says("Good", " day"), says("Good", " day")) as world, world.client() as client:
        response = await client.post(PATH, json=body())
        assert response.status_code == 200, response.text
        answer = response.json()
        assert answer["model"] == ALIAS_NAME
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Good day", "refusal": None}
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["total_tokens"] == PROMPT_TOKENS + 2
        assert response.headers["x-adapter-id"] == ADAPTER.adapter_id
        assert response.headers["x-adapter-tier"] == "gpu"


async def test_a_streamed_answer_is_exactly_what_clients_expect() -> None:
    async with gateway_world(says("Good", "", " day")) as world, world.client() as client:
        response = await client.post(PATH, json=body(stream=True, stream_options={"include_usage": True}))
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert all(event.startswith("data: ") for event in events[:-1])
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas == [{"role": "assistant", "content": "Good"}, {"content": " day"}, {"content": ""}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, None, "stop"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 3
