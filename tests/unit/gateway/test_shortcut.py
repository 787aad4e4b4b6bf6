"""The way past the application, and whom it takes."""

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


def saying(word: bytes) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.body", "body": word})

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
