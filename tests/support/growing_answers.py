"""What a client has read of an answer so far, streamed or not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import msgspec

Body = dict[str, Any]


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has read. `error`: what ended it too early."""

    text: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""


async def growing(client: httpx.AsyncClient, body: Body) -> AsyncIterator[Read]:
    """What has been read so far, each time that there is more of it."""
    if not body["stream"]:
        yield _whole(await client.post("/v1/chat/completions", json=body))
        return
    got = Read()
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            yield Read(error=(await response.aread()).decode())
            return
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                got = _after(got, json.loads(line.removeprefix("data: ")))
                yield got


def _after(got: Read, event: Mapping[str, Any]) -> Read:
    """One more event of a stream."""
    if "error" in event:
        return msgspec.structs.replace(got, error=event["error"]["message"])
    if usage := event.get("usage"):
        prompt_tokens, completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        return msgspec.structs.replace(got, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
    [choice] = event["choices"]
    text = got.text + choice["delta"].get("content", "")
    return msgspec.structs.replace(got, text=text, finish_reason=choice["finish_reason"] or "")


def _whole(response: httpx.Response) -> Read:
    answer = response.json()
    if response.status_code != 200:
        return Read(error=answer["error"]["message"])
    [choice], usage = answer["choices"], answer["usage"]
    return Read(
        text=choice["message"]["content"], finish_reason=choice["finish_reason"],
        prompt_tokens=usage["prompt_tokens"], completion_tokens=usage["completion_tokens"],
    )  # fmt: skip
