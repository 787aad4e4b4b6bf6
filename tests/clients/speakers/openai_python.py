"""openai-python, the client that waits."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from tests.clients.speakers.protocol import Asked, Seen, serve


def speak(asked: Asked, seen: Seen) -> None:
    with OpenAI(base_url=asked["url"], api_key=asked["key"], max_retries=asked["retries"]) as client:
        _VERBS[asked["verb"]](client, asked["params"], seen)


def _chat(client: OpenAI, params: Any, seen: Seen) -> None:
    seen.append(client.chat.completions.create(**params).model_dump())


def _chat_stream(client: OpenAI, params: Any, seen: Seen) -> None:
    for chunk in client.chat.completions.create(**params, stream=True):
        seen.append(chunk.model_dump())


def _chat_helper(client: OpenAI, params: Any, seen: Seen) -> None:
    with client.chat.completions.stream(**params) as stream:
        for _ in stream:
            pass
        seen.append(stream.get_final_completion().model_dump())


def _completion(client: OpenAI, params: Any, seen: Seen) -> None:
    seen.append(client.completions.create(**params).model_dump())


def _completion_stream(client: OpenAI, params: Any, seen: Seen) -> None:
    for chunk in client.completions.create(**params, stream=True):
        seen.append(chunk.model_dump())


def _models(client: OpenAI, params: Any, seen: Seen) -> None:
    for model in client.models.list():
        seen.append(model.model_dump())


def _model(client: OpenAI, params: Any, seen: Seen) -> None:
    seen.append(client.models.retrieve(params["model"]).model_dump())


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
