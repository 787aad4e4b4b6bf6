"""LiteLLM's SDK with the provider `openai`, which any server of OpenAI's API is to it."""

from __future__ import annotations

from typing import Any

import litellm

from tests.clients.speakers.protocol import Asked, Seen, serve

litellm.suppress_debug_info = True


def speak(asked: Asked, seen: Seen) -> None:
    params = {**asked["params"], "model": f"openai/{asked['params']['model']}"}
    where = {"api_base": asked["url"], "api_key": asked["key"], "max_retries": asked["retries"]}
    _VERBS[asked["verb"]]({**params, **where}, seen)


def _chat(params: Any, seen: Seen) -> None:
    seen.append(litellm.completion(**params).model_dump())


def _chat_stream(params: Any, seen: Seen) -> None:
    for chunk in litellm.completion(**params, stream=True):
        seen.append(chunk.model_dump())


def _completion(params: Any, seen: Seen) -> None:
    seen.append(litellm.text_completion(**params).model_dump())


def _completion_stream(params: Any, seen: Seen) -> None:
    for chunk in litellm.text_completion(**params, stream=True):
        seen.append(chunk.model_dump())


_VERBS = {
    "chat": _chat,
    "chat_stream": _chat_stream,
    "completion": _completion,
    "completion_stream": _completion_stream,
}

if __name__ == "__main__":
    serve(speak)
