"""Reading requests strictly and writing answers in one form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response

from services.registry.app import Registry
from services.registry.core.deployment.aliases import Denied
from services.registry.core.files.unreadable import misfit
from shared.messages.adapters import Defect

T = TypeVar("T")

LARGEST_BODY_BYTES = 1 << 20
_JSON = "application/json"
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What text that is no JSON, or is nested deeper than anybody reads, ends in."""
_STATUS = {"invalid": 422, "forbidden": 403, "missing": 404, "conflict": 409}


class Problem(Exception):
    """An answer that is an error: one sentence, a code that stays the same, the field that is wrong."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.defects: tuple[Defect, ...] = ()
        self.retry_after_s: int | None = None


def rejection(defects: tuple[Defect, ...]) -> Problem:
    """All defects; the sentence is the first one's, with the number of the others."""
    first, others = defects[0], len(defects) - 1
    more = f" (and {others} more)" if others else ""
    problem = Problem(422, f"{first.message}{more}", first.code, first.field)
    problem.defects = defects
    return problem


def busy(message: str, code: str) -> Problem:
    """Something this answer needs is away for the moment."""
    problem = Problem(503, message, code)
    problem.retry_after_s = 1
    return problem


def registry_of(request: Request) -> Registry:
    registry: Registry = request.app.state.registry
    return registry


def granted(outcome: T | Denied) -> T:
    """What was asked for, or the Problem that it was denied."""
    if isinstance(outcome, Denied):
        if outcome.kind == "unavailable":
            raise busy(outcome.message, outcome.code)
        raise Problem(_STATUS[outcome.kind], outcome.message, outcome.code, outcome.field)
    return outcome


async def body(request: Request, kind: type[T], *, absent: T | None = None) -> T:
    """The request's body as a struct; `absent` stands for an empty one. Raises Problem: 413, 400 for what
    is no JSON, 422 for JSON that is not a `kind`."""
    raw = await _raw(request)
    if not raw and absent is not None:
        return absent
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        _require_json(raw)  # a wrong field is found before a missing bracket, which is the worse fault
        wrong = misfit(str(error))
        raise Problem(422, wrong.message, "invalid_body", wrong.field) from error
    except _NO_JSON as error:
        raise _malformed(error) from error


async def limited(request: Request, limit_bytes: int) -> AsyncIterator[bytes]:
    """The body as it comes. Raises Problem 413 as soon as it is, or claims to be, too long."""
    too_large = Problem(413, f"The body is larger than the {limit_bytes} bytes allowed.", "body_too_large")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit_bytes:
        raise too_large
    size_bytes = 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise too_large
        yield chunk


def answer(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type=_JSON)


def error_answer(problem: Problem) -> Response:
    kind = "invalid_request_error" if problem.status < 500 else "api_error"
    error: dict[str, Any] = {
        "message": problem.message,
        "type": kind,
        "code": problem.code,
        "param": problem.param,
    }
    if problem.defects:
        error["defects"] = problem.defects
    headers = {} if problem.retry_after_s is None else {"retry-after": str(problem.retry_after_s)}
    return Response(msgspec.json.encode({"error": error}), problem.status, headers, _JSON)


async def _raw(request: Request) -> bytes:
    return b"".join([chunk async for chunk in limited(request, LARGEST_BODY_BYTES)])


def _require_json(raw: bytes) -> None:
    try:
        msgspec.json.decode(raw)
    except _NO_JSON as error:
        raise _malformed(error) from error


def _malformed(error: Exception) -> Problem:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
    return Problem(400, f"The body is not JSON: {reason}.", "malformed_json")
