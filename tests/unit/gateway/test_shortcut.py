"""The way past the application: whom it takes, and what becomes of what fails on it."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from services.gateway.io.shortcut import Shortcut


class Log:
    def __init__(self) -> None:
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        return {"type": "http.request"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def saying(word: bytes, *, fails: bool = False, begins: bool = True) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": word, "more_body": True})
        if fails:
            raise LookupError(word)

    return app


async def bodies(log: Log, route: Any, method: str, path: str) -> list[bytes]:
    shortcut = Shortcut(saying(b"app"), {"/v1/here": route})
    await shortcut({"type": "http", "method": method, "path": path}, log.receive, log.send)
    return [message["body"] for message in log.sent if "body" in message]


@pytest.mark.parametrize(("method", "path", "who"), [
    ("POST", "/v1/here", b"route"), ("GET", "/v1/here", b"app"), ("POST", "/v1/there", b"app"),
])  # fmt: skip
async def test_only_what_is_posted_there_goes_there(method: str, path: str, who: bytes) -> None:
    assert await bodies(Log(), saying(b"route"), method, path) == [who]


async def test_what_fails_before_it_answers_is_answered_and_raised() -> None:
    log = Log()
    with pytest.raises(LookupError):
        await bodies(log, saying(b"", fails=True, begins=False), "POST", "/v1/here")
    start, body = log.sent
    assert (start["status"], b'"code":"internal_error"' in body["body"]) == (500, True)


async def test_what_fails_in_its_answer_says_nothing_more() -> None:
    log = Log()
    with pytest.raises(LookupError):
        await bodies(log, saying(b"half", fails=True), "POST", "/v1/here")
    assert [message.get("body") for message in log.sent] == [None, b"half"]
