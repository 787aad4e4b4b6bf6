"""One streamed answer from the public address, by httpx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from services.console.core.outcome import BROKEN, UNREACHABLE, exit_code
from services.console.io.admin import CommandFailed


class Door:
    """The OpenAI-compatible address with one tenant's key."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}

    def models(self) -> set[str]:
        """What this key may call. Raises CommandFailed, also for a key that the gateway does not know."""
        return _names(self._models())

    def models_by_now(self) -> set[str]:
        """What a key that was just made may call; nothing while the gateway does not know it yet."""
        answer = self._models()
        unknown = answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.SERVICE_UNAVAILABLE)
        return set() if unknown else _names(answer)

    def stream(self, body: dict[str, Any]) -> Iterator[tuple[dict[str, str], str]]:
        """Yields (response headers, text delta). Raises CommandFailed, also when the stream breaks off, however
        politely: an answer has ended when it says so."""
        content = {**body, "stream": True}
        timeout = httpx.Timeout(120.0, connect=5.0)
        try:
            with (
                httpx.Client(timeout=timeout, trust_env=False) as http,
                http.stream("POST", f"{self._url}/v1/chat/completions", json=content, headers=self._headers) as answer,
            ):
                if answer.status_code != 200:
                    answer.read()
                    raise CommandFailed(_message(answer.text), exit_code(answer.status_code))
                for line in answer.iter_lines():
                    if line == "data: [DONE]":
                        return
                    if line.startswith("data: "):
                        yield dict(answer.headers), _delta(line[6:])
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _no_answer(self._url, error) from error
        raise CommandFailed("The answer broke off before its end.", BROKEN)

    def _models(self) -> httpx.Response:
        try:
            return httpx.get(f"{self._url}/v1/models", headers=self._headers, trust_env=False)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _no_answer(self._url, error) from error


def _no_answer(url: str, error: Exception) -> CommandFailed:
    return CommandFailed(f"No answer from {url}: is the fleet up? ({error})", UNREACHABLE)


def _names(answer: httpx.Response) -> set[str]:
    if answer.status_code != httpx.codes.OK:
        raise CommandFailed(_message(answer.text), exit_code(answer.status_code))
    return {model["id"] for model in answer.json()["data"]}


def _delta(payload: str) -> str:
    try:
        chunk = json.loads(payload)
        if "error" in chunk:
            raise CommandFailed(str(chunk["error"]["message"]), BROKEN)
        return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandFailed(f"The answer has a piece that is none: {payload[:200]}", BROKEN) from error


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
