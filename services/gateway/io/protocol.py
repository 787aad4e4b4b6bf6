"""What the gateway's connections speak: HTTP/1.1 that sends each token at once, to so many clients and no more."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.server import ServerState

from services.gateway.core.refusal import Refusal
from services.gateway.io.ahead import Begun, bounded, is_last_here, is_owed_answer, lose
from services.gateway.io.connection_policy import ConnectionPolicy
from services.gateway.io.line import Flow, Turn
from services.gateway.io.patience import Patience
from services.gateway.io.reading import Head, NoHttp, Reading
from services.gateway.io.reply import Reply, reply_to
from services.gateway.io.turning_out import FAILED, head_too_large, head_too_slow, refuser, said, too_many
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class PromptProtocol(asyncio.Protocol):
    """HTTP/1.1 over sockets that send each token at once, and give up on a client that stopped reading. Uvicorn's
    server makes one for each connection, and asks it to end.

    With Nagle's algorithm on, a kept-alive connection would hold each first token back until the client's delayed
    acknowledgement, about 40 ms. The kernel's user timeout drops a connection that has had something to send for
    `slow_write_s` and could not: nothing in the gateway has to watch for it.

    Each request has its line: tokens need no task to be written, and a client that leaves none to be noticed.
    Where nothing comes in there is no parser: thousands of connections are idle, or have a stream open.
    """

    __slots__ = (
        "_app", "_begun", "_connections", "_is_leaving", "_loop", "_patience", "_reading", "flow", "server_state",
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
        self._begun: Begun = ()
        self._is_leaving = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self.policy.slow_write_s * 1000))
        self.transport, self.flow = transport, Flow(transport)
        self._patience = Patience(transport, self.policy, self._loop)
        self._patience.await_more(is_rest=False)
        self._connections.add(self)
        if len(self._connections) > self.policy.most + self.policy.most_told:
            transport.abort()
        elif len(self._connections) > self.policy.most:
            self._app = refuser(too_many(self.policy.most))

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._patience.head_is_here()
        self._reading = None
        lose(self._begun)
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
        if self._is_deaf or self._is_refused_rest:
            if self._patience.drop(len(data), is_answering=bool(self._begun)) or self._is_deaf:
                return
        else:
            self._patience.more_is_here()
        self._read(data)

    def _read(self, data: bytes) -> None:
        reading = self._reading = self._reading or Reading(self)
        try:
            reading.feed(data)
            if reading.pending_bytes > self.policy.largest_head_bytes:  # of a head, or of headers behind a body
                raise NoHttp(head_too_large(self.policy.largest_head_bytes))
        except NoHttp as error:
            self._turn_out(error.why)
        except Exception as error:
            _log.exception("the gateway failed at what it was sent", error=error)
            self._turn_out(FAILED)
        else:
            self._has_read(reading)

    def _has_read(self, reading: Reading) -> None:
        if len(self._begun) > 1:
            self._begun = bounded(self._begun, self.policy.most_ahead_bytes)
        if reading.is_between or self._is_deaf:
            self._reading = None
        elif reading.in_head:
            self._patience.await_head(self._head_is_late)
            return
        if not self._begun:  # what came began no request: the end of a line, or of a body that was refused
            self._patience.await_more(is_rest=self._is_refused_rest)

    def hear_head(self, head: Head) -> None:
        self._patience.head_is_here()
        if self._is_deaf:
            self._patience.drop(head.size_bytes, is_answering=True)
            return
        if head.size_bytes > self.policy.largest_head_bytes:
            self._app = refuser(head_too_large(self.policy.largest_head_bytes))
        reply = reply_to(head, self, self._app, self.turn)
        self._begun = (*self._begun, reply)
        reply.keeps = reply.keeps and len(self._begun) <= self.policy.most_ahead
        if len(self._begun) == 1:
            self._run(reply)

    def hear_body(self, body: bytes) -> None:
        if self._begun and self._begun[-1].more_body:
            self._begun[-1].hear(body)

    def hear_end(self) -> None:
        if not self._begun:  # its request was refused, and yet all of it came
            self._patience.rest_is_here()
        elif self._begun[-1].more_body:
            self._begun[-1].hear_end()

    def answered(self) -> None:
        reply, self._begun = self._begun[0], self._begun[1:]
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if not reply.keeps:
            self._leave()
        elif self._begun:
            self._run(self._begun[0])
        else:
            self._patience.await_more(is_rest=self._is_refused_rest)

    def _run(self, reply: Reply) -> None:
        task = self._loop.create_task(reply.run())
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)

    @property
    def _is_refused_rest(self) -> bool:
        """What comes belongs to a request that was answered before it was whole."""
        return self._reading is not None and not self._begun and self._reading.in_body

    @property
    def _is_deaf(self) -> bool:
        """All of the last request is here that is answered on this connection."""
        return is_last_here(self._begun) if self._begun else self._is_leaving

    def _head_is_late(self) -> None:
        self._patience.head_is_here()
        if not self._begun:
            self._turn_out(head_too_slow(self.policy.head_s))
        else:  # of a request that was sent before the answer to the last one is whole
            self._patience.await_head(self._head_is_late)

    def _turn_out(self, why: Refusal) -> None:
        """An answer to what is no whole request, and the end of the connection."""
        if not self.transport.is_closing():
            if not self._is_refused_rest and is_owed_answer(self._begun):
                self.transport.write(said(why))
            self._leave()

    def _leave(self) -> None:
        is_read = self._reading is None and not self._patience.dropped_bytes
        lose(self._begun)  # they have no say any more
        self._begun, self._reading, self._is_leaving = (), None, True
        self.flow.resume_reading()
        self._patience.part(is_read=is_read)


def prompt_protocol(policy: ConnectionPolicy) -> type[PromptProtocol]:
    """What a server makes one of for each connection."""
    return type("PolicedProtocol", (PromptProtocol,), {"__slots__": (), "policy": policy, "turn": Turn()})
