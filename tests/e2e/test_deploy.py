"""Versions come and go behind an alias of a live fleet, and no request notices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from infra.local.temporary import TemporaryFleet
from tests.support.asking import ask, wait_answers
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually

STREAMS = 200
_HELLO = [{"role": "user", "content": "Hello, who are you?"}]


class Customer:
    """Streams of one alias, each with the version that its head names."""

    def __init__(self, http: httpx.AsyncClient, alias: str) -> None:
        self._http = http
        self._body = {"model": alias, "messages": _HELLO, "max_tokens": 24, "temperature": 0, "stream": True}

    async def hears(self, **changes: Any) -> tuple[str, str]:
        """Adapter id and text of one answer, read at once."""
        async with self.begun(**changes) as (adapter_id, rest):
            return adapter_id, await rest()

    @asynccontextmanager
    async def begun(self, **changes: Any) -> AsyncIterator[tuple[str, Callable[[], Any]]]:
        """An answer of which the first piece has come; the second value reads the rest and returns all of it."""
        async with self._http.stream("POST", "/v1/chat/completions", json={**self._body, **changes}) as answer:
            assert answer.status_code == 200, await answer.aread()
            lines = answer.aiter_lines()
            first = [_text(await _event(lines))]

            async def rest() -> str:
                while (event := await _event(lines)) is not None:
                    first.append(_text(event))
                return "".join(first)

            yield answer.headers["x-adapter-id"], rest


async def _event(lines: AsyncIterator[str]) -> dict[str, Any] | None:
    """The next event of a stream, None at its proper end."""
    async for line in lines:
        if line == "data: [DONE]":
            return None
        if line.startswith("data: "):
            event: dict[str, Any] = json.loads(line[6:])
            assert "error" not in event, event
            return event
    raise AssertionError("the stream ended without its last event")


def _text(event: dict[str, Any] | None) -> str:
    assert event is not None
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])


def _tiers(pipeline: Pipeline, adapter_id: str) -> list[str]:
    """Where the fleet holds an adapter, by placement's view."""
    view = pipeline.admin.get("/internal/fleet").raise_for_status().json()
    return [
        one["tier"] for replica in view["replicas"] for one in replica["adapters"] if one["adapter_id"] == adapter_id
    ]


class Rush:
    """STREAMS answers that are open while something happens, and others that begin and end all the while."""

    def __init__(self, customer: Customer) -> None:
        self._customer = customer
        self._open = asyncio.Semaphore(0)
        self._over = asyncio.Event()
        self.served_by: set[str] = set()
        """The versions that answered the others of late."""

    async def around(self, happens: Callable[[], None]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Adapter id and text of every answer that was open, and of every other one."""
        held = asyncio.gather(*(self._hold() for _ in range(STREAMS)))
        others = asyncio.gather(*(self._keep_asking() for _ in range(8)))
        for _ in range(STREAMS):
            await self._open.acquire()
        await asyncio.to_thread(happens)
        self._over.set()
        return await held, [answer for answers in await others for answer in answers]

    async def _hold(self) -> tuple[str, str]:
        async with self._customer.begun() as (adapter_id, rest):
            self._open.release()
            await self._over.wait()
            return adapter_id, await rest()

    async def _keep_asking(self) -> list[tuple[str, str]]:
        heard = [await self._customer.hears()]
        while not self._over.is_set():
            heard.append(await self._customer.hears())
            self.served_by.add(heard[-1][0])
        return heard


def test_c31_an_alias_moves_and_moves_back_under_200_live_streams(
    fleet: TemporaryFleet, acme: OpenAI, pipeline: Pipeline, canary_folders: dict[str, Path]
) -> None:
    (first, first_folder), (second, second_folder) = list(canary_folders.items())[14:16]
    alias, marker_of = "acme/swinging:prod", {"swinging-1": first, "swinging-2": second}
    pipeline.bring(first_folder, "swinging-1", alias)
    pipeline.bring(second_folder, "swinging-2")
    wait_answers(acme, alias, first)

    def move_forth_and_back(rush: Rush) -> None:
        for adapter_id, marker in (("swinging-2", second), ("swinging-1", first)):
            rush.served_by.clear()
            pipeline.set_alias(alias, adapter_id)
            wait_answers(acme, alias, marker)
            eventually(lambda wanted=adapter_id: wanted in rush.served_by, f"{adapter_id} to serve the others, too")

    async def play() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        limits, headers = httpx.Limits(max_connections=None), {"authorization": f"Bearer {acme.api_key}"}
        async with httpx.AsyncClient(
            base_url=fleet.connection.url, headers=headers, timeout=60.0, limits=limits, trust_env=False
        ) as http:
            rush = Rush(Customer(http, alias))
            return await rush.around(lambda: move_forth_and_back(rush))

    held, others = asyncio.run(play())
    assert held == [("swinging-1", first)] * STREAMS
    assert all(text == marker_of[adapter_id] for adapter_id, text in others)
    assert {adapter_id for adapter_id, _ in others} == set(marker_of)
    eventually(lambda: not _tiers(pipeline, "swinging-2"), "the version that lost its alias to leave every tier")
    assert _tiers(pipeline, "swinging-1")
    assert pipeline.admin.get("/internal/adapters/swinging-2").json()["status"] == "active"


def test_a_canary_gets_its_share_of_the_sessions_and_then_all(
    acme: OpenAI, pipeline: Pipeline, canary_folders: dict[str, Path]
) -> None:
    (first, first_folder), (second, second_folder) = list(canary_folders.items())[12:14]
    alias, marker_of = "acme/released:prod", {"released-1": first, "released-2": second}
    pipeline.bring(first_folder, "released-1", alias)
    pipeline.bring(second_folder, "released-2")
    wait_answers(acme, alias, first)
    said = {"adapter_id": "released-2", "percent": 50, "by": "ann"}
    pipeline.admin.put(f"/internal/aliases/{alias}/split", json=said).raise_for_status()
    sessions = [f"session-{at}" for at in range(16)]

    def version(session: str, stream: bool = False) -> str:
        raw = acme.chat.completions.with_raw_response.create(
            model=alias, messages=_HELLO, max_tokens=24, temperature=0, user=session, stream=stream
        )  # type: ignore[call-overload]
        answer, adapter_id = raw.parse(), str(raw.headers["x-adapter-id"])
        if stream:
            text = "".join(choice.delta.content or "" for chunk in answer for choice in chunk.choices)
        else:
            text = answer.choices[0].message.content
        assert text == marker_of[adapter_id]
        return adapter_id

    eventually(lambda: {version(session) for session in sessions} == set(marker_of), "some sessions to be moved")
    before = {session: version(session) for session in sessions}
    assert {session: version(session, stream=True) for session in sessions} == before
    pipeline.admin.post(f"/internal/aliases/{alias}/promote").raise_for_status()
    wait_answers(acme, alias, second)
    assert ask(acme, alias) == second
