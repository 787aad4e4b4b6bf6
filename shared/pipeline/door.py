"""The admin address over a link that may break and a registry that may restart."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import httpx
import msgspec

from shared.messages.adapters import Defect
from shared.pipeline.outcome import Refused, Unreachable

T = TypeVar("T")

_TIMEOUTS = httpx.Timeout(connect=5.0, read=300.0, write=60.0, pool=None)
"""A registry that joins a large upload, or checks it, answers when it is done."""
_PASSING = (429, 502, 503, 504)


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to go on without any success, and the waits in between, which double and have jitter: a thousand
    pipelines that lost one registry do not come back at once."""

    give_up_s: float = 120.0
    first_s: float = 0.1
    longest_s: float = 5.0
    draw: Callable[[], float] = random.random
    """From 0 to 1."""

    def wait_s(self, failures: int) -> float:
        """After so many failures in a row."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30)) * (0.5 + 0.5 * self.draw())


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What a request carries; `chunks` makes it anew for every attempt."""

    chunks: Callable[[], AsyncIterator[bytes]]
    headers: Mapping[str, str]


class Trying:
    """Failures in a row. `failed` waits, and raises Unreachable when patience has run out."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._failures = 0
        self._since_s = time.monotonic()

    def came_further(self) -> None:
        self._failures = 0
        self._since_s = time.monotonic()

    async def failed(self, reason: str, at_least_s: float = 0.0) -> None:
        self._failures += 1
        wait_s = max(self._patience.wait_s(self._failures), at_least_s)
        if time.monotonic() + wait_s > self._since_s + self._patience.give_up_s:
            raise Unreachable(f"The registry could not be asked for {self._patience.give_up_s:g} s: {reason}.")
        await asyncio.sleep(wait_s)


class Door:
    """Requests to `/internal`. What may pass (no connection, a broken one, 503) is tried again with back-off."""

    def __init__(self, admin_url: str, admin_key: str, patience: Patience, connections: int = 16) -> None:
        self.patience = patience
        self._http = httpx.AsyncClient(
            base_url=admin_url,
            headers={"authorization": f"Bearer {admin_key}"},
            timeout=_TIMEOUTS,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, path: str, kind: type[T], **params: str) -> T | None:
        """None for a 404. Raises Unreachable, Refused."""
        answer = await self._ask("GET", path, params=params)
        return None if answer.status_code == 404 else told(answer, kind)

    async def post(self, path: str, body: object, kind: type[T]) -> T:
        """For what is harmless to repeat. Raises Unreachable, Refused."""
        return told(await self._ask("POST", path, content=msgspec.json.encode(body)), kind)

    async def put_once(self, path: str, body: Body) -> httpx.Response:
        """A single attempt. Raises httpx.TransportError."""
        return await self._http.put(path, content=body.chunks(), headers=dict(body.headers))

    async def _ask(self, method: str, path: str, **said: Any) -> httpx.Response:
        trying = Trying(self.patience)
        while True:
            try:
                answer = await self._http.request(method, path, **said)
            except httpx.TransportError as error:
                await trying.failed(in_words(error))
                continue
            if not passes(answer):
                return answer
            await trying.failed(str(refusal(answer)).rstrip("."), retry_after_s(answer))


class _Error(msgspec.Struct, frozen=True):
    message: str
    code: str | None = None
    defects: tuple[Defect, ...] = ()


class _Envelope(msgspec.Struct, frozen=True):
    error: _Error


def told(answer: httpx.Response, kind: type[T]) -> T:
    """Raises Refused, also for an answer that no registry gives."""
    if answer.status_code >= 400:
        raise refusal(answer)
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.MsgspecError as error:
        raise Refused(f"{answer.url} is no registry: {error}.", answer.status_code, "not_a_registry") from error


def refusal(answer: httpx.Response) -> Refused:
    try:
        error = msgspec.json.decode(answer.content, type=_Envelope).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        said = f"{answer.url} answered {answer.status_code}: {answer.text[:200]}"
        return Refused(said, answer.status_code, "not_a_registry")
    return Refused(error.message, answer.status_code, error.code or "", error.defects)


def passes(answer: httpx.Response) -> bool:
    """Whether asking again later may help."""
    return answer.status_code in _PASSING


def retry_after_s(answer: httpx.Response) -> float:
    text = answer.headers.get("retry-after", "")
    return min(float(text), 60.0) if text.isdecimal() else 0.0


def in_words(error: httpx.TransportError) -> str:
    return f"{type(error).__name__} {error}".strip()
