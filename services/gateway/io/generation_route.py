"""A door to generation as a bare ASGI application: reads the request, has it admitted, and answers it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.types import Receive, Scope, Send

from services.gateway.core import deadline
from services.gateway.core.openai.bodies import Parse
from services.gateway.core.question import STRATEGIES
from services.gateway.core.refusal import Refusal, bad_request
from services.gateway.core.wish import Wish
from services.gateway.io.answering import Head, answer, send_refusal
from services.gateway.io.body import BodyLimits, ClientGone, read_body
from services.gateway.io.door import Door, Exchange
from services.gateway.io.line import Line, line_of
from shared.messages.identity import is_subject_token

STRATEGY_HEADER = "x-lorafleet-strategy"

Headers = Mapping[str, str]
"""By their names in small letters."""


class RoutePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`strategies`: whether a request may choose by a header how its replica is chosen."""

    body: BodyLimits
    strategies: bool = False


class GenerationRoute:
    """`parse` knows the one body that is sent here."""

    def __init__(self, door: Door, policy: RoutePolicy, parse: Parse) -> None:
        self._door = door
        self._policy = policy
        self._parse = parse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, line = _headers(scope), line_of(scope)
        head: Head = {"x-request-id": self._request_id(headers)}
        try:
            admitted = await self._admit(headers, receive, line, head["x-request-id"])
        except ClientGone:
            return
        if isinstance(admitted, Refusal):
            self._door.turned_away(admitted, head["x-request-id"])
            await send_refusal(send, admitted, head)
            return
        del scope, headers  # a stream is open for long, and many are
        wish, exchange = admitted
        head |= exchange.limits
        try:
            line.watch(lambda: exchange.leave("The client left."))
            await answer(wish, exchange, head, line, send)
        finally:
            line.unwatch()
            exchange.leave("The response ended early.")

    def _request_id(self, headers: Headers) -> str:
        """The client's own, if it can stand in a header and a log line as it is."""
        given = headers.get("x-request-id", "")
        return given if given and is_subject_token(given) else self._door.unique_id()

    async def _admit(
        self, headers: Headers, receive: Receive, line: Line, request_id: str
    ) -> tuple[Wish, Exchange] | Refusal:
        caller = self._door.authenticate(headers.get("authorization"))
        if isinstance(caller, Refusal):
            return caller
        body = await read_body(headers, receive, self._policy.body, is_here=line.whole)
        if isinstance(body, Refusal):
            return body
        wish = self._parse(body)
        if isinstance(wish, Refusal):
            return wish
        if traceparent := headers.get("traceparent"):
            wish = msgspec.structs.replace(wish, traceparent=traceparent)
        if session := headers.get("x-session-id"):
            wish = msgspec.structs.replace(wish, session=session)
        if self._policy.strategies and (named := headers.get(STRATEGY_HEADER)):
            if (strategy := next((each for each in STRATEGIES if each == named), None)) is None:
                return bad_request(f"{STRATEGY_HEADER} is one of {', '.join(STRATEGIES)}, not {named[:40]!r}.")
            wish = msgspec.structs.replace(wish, strategy=strategy)
        timeout_s = deadline.read(headers.get(deadline.HEADER))
        if isinstance(timeout_s, Refusal):
            return timeout_s
        wish = msgspec.structs.replace(wish, timeout_s=timeout_s) if timeout_s else wish
        exchange = await self._door.begin(caller, wish, request_id)
        return exchange if isinstance(exchange, Refusal) else (wish, exchange)


def _headers(scope: Scope) -> Headers:
    """The first of each name."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
