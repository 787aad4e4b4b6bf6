"""openai-python, the client for asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI

from tests.clients.speakers.protocol import Asked, Seen, serve


def speak(asked: Asked, seen: Seen) -> None:
    asyncio.run(_speak(asked, seen))


async def _speak(asked: Asked, seen: Seen) -> None:
    async with AsyncOpenAI(base_url=asked["url"], api_key=asked["key"], max_retries=asked["retries"]) as client:
        await _VERBS[asked["verb"]](client, asked["params"], seen)


async def _chat(client: AsyncOpenAI, params: Any, seen: Seen) -> None:
    seen.append((await client.chat.completions.create(**params)).model_dump())


async def _chat_stream(client: AsyncOpenAI, params: Any, seen: Seen) -> None:
    async for chunk in await client.chat.completions.create(**params, stream=True):
        seen.append(chunk.model_dump())


async def _chat_helper(client: AsyncOpenAI, params: Any, seen: Seen) -> None:
    async with client.chat.completions.stream(**params) as stream:
        async for _ in stream:
            pass
        seen.append((await stream.get_final_completion()).model_dump())


async def _completion(client: AsyncOpenAI, params: Any, seen: Seen) -> None:
    seen.append((await client.completions.create(**params)).model_dump())


async def _completion_stream(client: AsyncOpenAI, params: Any, seen: Seen) -> None:
    async for chunk in await client.completions.create(**params, stream=True):
        seen.append(chunk.model_dump())


async def _models(client: AsyncOpenAI, params: Any, seen: Seen) -> None:
    async for model in client.models.list():
        seen.append(model.model_dump())


async def _model(client: AsyncOpenAI, params: Any, seen: Seen) -> None:
    seen.append((await client.models.retrieve(params["model"])).model_dump())


_VERBS = {
    "chat": _chat,
    "chat_stream": _chat_stream,
    "chat_helper": _chat_helper,
    "completion": _completion,
    "completion_stream": _completion_stream,
    "models": _models,
    "model": _model,
}

if __name__ == "__main__":
    serve(speak)
