"""Short ways to ask a fleet through the official SDK."""

from __future__ import annotations

from collections.abc import Iterator

from openai import APIStatusError, OpenAI

from tests.support.waiting import eventually


def ask(client: OpenAI, model: str, prompt: str = "Hello, who are you?", max_tokens: int = 24) -> str:
    """One greedy answer, not streamed."""
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": prompt}], max_tokens=max_tokens, temperature=0
    )
    return answer.choices[0].message.content or ""


def stream(client: OpenAI, model: str, prompt: str = "Hello, who are you?", max_tokens: int = 24) -> Iterator[str]:
    """The text deltas of one greedy answer."""
    chunks = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": prompt}], max_tokens=max_tokens, temperature=0, stream=True
    )
    finished = False
    for chunk in chunks:
        for choice in chunk.choices:
            finished = finished or choice.finish_reason is not None
            yield choice.delta.content or ""
    assert finished, "the stream ended cleanly, but without a finish reason: a client would take half for the whole"


def wait_answers(client: OpenAI, model: str, text: str) -> None:
    """Until the model's answer is this text: an alias reaches the gateways a moment after the registry."""
    eventually(lambda: _answer(client, model) == text, f"{model} to answer {text!r}")


def _answer(client: OpenAI, model: str) -> str | None:
    try:
        return ask(client, model)
    except APIStatusError as error:
        if error.status_code in (404, 503):
            return None
        raise
