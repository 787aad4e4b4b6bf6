"""What a connection is told that is not served: in the envelope that clients look for, and that it ends with that."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from services.gateway.core import refusal
from services.gateway.core.refusal import Refusal

NO_HTTP = refusal.bad_request("This is no HTTP request.", code="invalid_http")
NO_HOST = refusal.bad_request("A request by HTTP/1.1 names its host, once.", code="invalid_http")
FAILED = refusal.failed("The gateway failed at this request.", code="internal_error")


def refuser(why: Refusal) -> ASGIApp:
    """An application that says the same to everybody, once."""
    headers = [(name.encode(), value.encode()) for name, value in _headers(why).items()]

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": why.status, "headers": headers})
        await send({"type": "http.response.body", "body": why.envelope})

    return refuse


def said(why: Refusal) -> bytes:
    """A whole answer."""
    head = "".join(f"{name}: {value}\r\n" for name, value in _headers(why).items())
    return f"HTTP/1.1 {why.status} \r\n{head}\r\n".encode() + why.envelope


def too_many(most: int) -> Refusal:
    message = f"This gateway has {most} connections already and takes no more at the moment."
    return refusal.unavailable(message, code="too_many_connections")


def head_too_large(largest_bytes: int) -> Refusal:
    message = f"The request line and headers are larger than {largest_bytes} bytes."
    return refusal.bad_request(message, code="headers_too_large", status=431)


def too_many_headers(most: int) -> Refusal:
    message = f"The request has more than {most} headers."
    return refusal.bad_request(message, code="headers_too_large", status=431)


def head_too_slow(head_s: float) -> Refusal:
    message = f"The request's headers did not come within {head_s:g} s."
    return refusal.bad_request(message, code="request_timeout", status=408)


def _headers(why: Refusal) -> dict[str, str]:
    ending = {"content-type": "application/json", "content-length": str(len(why.envelope)), "connection": "close"}
    return {**why.headers, **ending}
