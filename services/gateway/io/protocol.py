"""What the gateway's connections speak: HTTP/1.1 that sends each token at once, to so many clients and no more."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.server import ServerState

from services.gateway.core.refusal import Refusal
from services.gateway.io.connection_policy import ConnectionPolicy
from services.gateway.io.line import Flow, Turn
from services.gateway.io.reading import Head, NoHttp, Reading
from services.gateway.io.reply import Reply, reply_to
from services.gateway.io.turning_out import NO_HTTP, head_too_large, head_too_slow, refuser, said, too_many


class PromptProtocol(asyncio.Protocol):
    """HTTP/1.1 over sockets that send each token at once, and give up on a client that stopped reading. Uvicorn's
    server makes one for each connection, and asks it to end.

    With Nagle's algorithm on, a kept-alive connection would hold each first token back until the client's
    delayed acknowledgement, about 40 ms. The kernel's user timeout drops a connection that has had
    something to send for `slow_write_s` and could not: nothing in the gateway has to watch for it.

    Each request has its line: tokens need no task to be written, and a client that leaves none to be noticed.
    Where nothing comes in there is no parser: thousands of connections are idle, or have a stream open.
    """

    __slots__ = (
        "_app", "_begun", "_connections", "_head_due", "_idle_due", "_loop", "_reading", "flow", "server_state",
        "transport",
    )  # fmt: skip
    policy = ConnectionPolicy()
    turn = Turn()

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        self.server_state = server_state
        self._connections: set[Any] = server_state.connections
        self._app: ASGIApp = config.app  # type: ignore[assignment]  # not its name
        self._loop = _loop or asyncio.get_running_loop()
        self._reading: Reading | None = None
        self._head_due: asyncio.TimerHandle | None = None
        self._idle_due: asyncio.TimerHandle | None = None
        self._begun: tuple[Reply, ...] = ()
        """The request that is answered, and those that were sent without waiting for its end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self.policy.slow_write_s * 1000))
        self.transport, self.flow = transport, Flow(transport)
        self._connections.add(self)
        self._is_idle()
        if len(self._connections) > self.policy.most + self.policy.most_told:
            transport.abort()
        elif len(self._connections) > self.policy.most:
            self._app = refuser(too_many(self.policy.most))

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._is_busy()
        self._head_is_over()
        self._reading = None
        for reply in self._begun:
            reply.lose()
        self.flow.resume_writing()

    def shutdown(self) -> None:
        """What was asked is answered; nothing more is listened to."""
        if self._begun:
            self._begun[-1].keeps = False
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self.flow.resume_writing()
        for reply in self._begun:
            reply.line.make_room()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._is_busy()
        reading = self._reading = self._reading or Reading(self)
        try:
            reading.feed(data)
        except NoHttp:
            self._turn_out(NO_HTTP)
            return
        if reading.pending_bytes > self.policy.largest_head_bytes:  # of a head, or of headers behind a body
            self._turn_out(head_too_large(self.policy.largest_head_bytes))
        elif reading.in_head:
            self._watch_head()
        else:
            self._is_read(reading)

    def _is_read(self, reading: Reading) -> None:
        if reading.is_between or self._is_deaf:
            self._reading = None
        if not self._begun:
            self._is_idle()  # what came began no request: the end of a line, or of a body that was refused

    def hear_head(self, head: Head) -> None:
        self._head_is_over()
        if self._is_deaf:
            return
        if head.size_bytes > self.policy.largest_head_bytes:
            self._app = refuser(head_too_large(self.policy.largest_head_bytes))
        reply = reply_to(head, self, self._app, self.turn)
        self._begun = (*self._begun, reply)
        if len(self._begun) == 1:
            self._run(reply)
        else:
            reply.keeps = reply.keeps and len(self._begun) <= self.policy.most_ahead
            self.flow.pause_reading()

    def hear_body(self, body: bytes) -> None:
        if self._begun and self._begun[-1].more_body:
            self._begun[-1].hear(body)

    def hear_end(self) -> None:
        if self._begun and self._begun[-1].more_body:
            self._begun[-1].hear_end()

    def answered(self) -> None:
        self._begun = self._begun[1:]
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self._begun:
                self._run(self._begun[0])
            else:
                self._is_idle()

    def _run(self, reply: Reply) -> None:
        task = self._loop.create_task(reply.run())
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)

    def _is_idle(self) -> None:
        self._idle_due = self._loop.call_later(self.policy.keep_alive_s, self.transport.close)

    def _is_busy(self) -> None:
        due, self._idle_due = self._idle_due, None
        if due is not None:
            due.cancel()

    @property
    def _is_deaf(self) -> bool:
        """All of the last request is here that is answered on this connection."""
        return bool(self._begun) and not self._begun[-1].keeps and not self._begun[-1].more_body

    def _watch_head(self) -> None:
        """It did not come in one piece."""
        if self._head_due is None:
            self._head_due = self._loop.call_later(self.policy.head_s, self._head_is_late)

    def _head_is_over(self) -> None:
        due, self._head_due = self._head_due, None
        if due is not None:
            due.cancel()

    def _head_is_late(self) -> None:
        if not self._begun:
            self._turn_out(head_too_slow(self.policy.head_s))
        else:  # of a request that was sent before the answer to the last one is whole
            self._head_due = self._loop.call_later(self.policy.head_s, self._head_is_late)

    def _turn_out(self, why: Refusal) -> None:
        """An answer to what is no whole request, and the end of the connection."""
        self._head_is_over()
        if not self.transport.is_closing():
            if self._owes_answer:
                self.transport.write(said(why))
            self.transport.close()
            for reply in self._begun:  # they have no say any more
                reply.lose()

    @property
    def _owes_answer(self) -> bool:
        """What came belongs to no request that was answered, and nobody waits for the answer to another."""
        if self._begun:
            return len(self._begun) == 1 and self._begun[0].more_body and not self._begun[0].begun
        return self._reading is None or not self._reading.in_body


def prompt_protocol(policy: ConnectionPolicy) -> type[PromptProtocol]:
    """What a server makes one of for each connection."""
    return type("PolicedProtocol", (PromptProtocol,), {"__slots__": (), "policy": policy, "turn": Turn()})
