"""Usage: which requests there were, what they come to, and whether the sums agree with them."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from services.registry.accounting.usage import Usage
from services.registry.core.usage import END_OF_TIME_S, StoredUsage
from services.registry.http.exchange import Problem, answer, registry_of
from services.registry.io.usage_rows import UsageFilter
from services.registry.io.usage_sums import BY, TotalsFilter, WindowsFilter

LARGEST_PAGE = 1_000
SPAN_S = 86_400.0
"""How far back sums of adapters and aliases go if nothing is said: they are summed up anew each time."""
_MOST_DIGITS = 4

router = APIRouter()


@router.get("/usage")
async def listed(request: Request) -> Response:
    """A page of requests, the newest first; `next` is what to pass as `after` for the next one."""
    asked, limit = request.query_params, _limit(request)
    wanted = UsageFilter(
        adapter_id=asked.get("adapter_id") or None,
        tenant_id=asked.get("tenant_id") or None,
        alias=asked.get("alias") or None,
        since_s=_moment(request, "since_s", 0.0),
        until_s=_moment(request, "until_s", END_OF_TIME_S),
        before=_place(asked.get("after") or ""),
        limit=limit,
    )
    found = await _usage(request).listed(wanted)
    return answer({"usage": found, "next": _place_of(found[-1]) if len(found) == limit else None})


@router.get("/usage/totals")
async def totals(request: Request) -> Response:
    """A page of sums by name; `next` is what to pass as `after` for the next one."""
    asked, limit, now_s = request.query_params, _limit(request), _usage(request).now_s()
    by = asked.get("by") or BY[0]
    if by not in BY:
        raise Problem(422, f"by must be one of {', '.join(BY)}.", "invalid_query", "by")
    wanted = TotalsFilter(
        by=by,
        since_s=_moment(request, "since_s", 0.0 if by == BY[0] else now_s - SPAN_S),
        until_s=_moment(request, "until_s", now_s + SPAN_S),
        after=asked.get("after", ""),
        limit=limit,
    )
    found = await _usage(request).totals(wanted)
    return answer({"by": by, "totals": found, "next": found[-1].name if len(found) == limit else None})


@router.get("/usage/reconcile")
async def reconcile(request: Request) -> Response:
    tenant_id = request.query_params.get("tenant_id")
    if not tenant_id:
        raise Problem(422, "tenant_id says whose usage is compared.", "invalid_query", "tenant_id")
    compared = await _usage(request).reconcile(tenant_id)
    return answer({**_plain(compared), "agrees": compared.agrees})


@router.get("/adapters/{adapter_id}/stats")
async def stats(request: Request, adapter_id: str) -> Response:
    """A page of minutes in which there were requests, the newest first; also of an adapter that is gone."""
    limit, now_s = _limit(request), _usage(request).now_s()
    wanted = WindowsFilter(
        adapter_id=adapter_id,
        since_s=_moment(request, "since_s", now_s - SPAN_S),
        before_s=_moment(request, "after", _moment(request, "until_s", END_OF_TIME_S)),
        limit=limit,
    )
    found = await _usage(request).windows(wanted)
    return answer({"windows": found, "next": str(found[-1].window_start) if len(found) == limit else None})


def _usage(request: Request) -> Usage:
    return registry_of(request).usage


def _moment(request: Request, name: str, absent: float) -> float:
    """Seconds since 1970 in a query."""
    text = request.query_params.get(name)
    moment = absent if not text else _number(text)
    if moment is None:
        raise Problem(422, f"{name} must be seconds since 1970.", "invalid_query", name)
    return moment


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0.0 <= number < END_OF_TIME_S else None


def _limit(request: Request) -> int:
    limit = request.query_params.get("limit", str(LARGEST_PAGE))
    if not limit.isdecimal() or len(limit) > _MOST_DIGITS or not 0 < int(limit) <= LARGEST_PAGE:
        raise Problem(422, f"limit must be a number from 1 to {LARGEST_PAGE}.", "invalid_query", "limit")
    return int(limit)


def _place_of(record: StoredUsage) -> str:
    return f"{record.at_s!r}_{record.call_id}"


def _place(text: str) -> tuple[float, str] | None:
    """Where the page before ended."""
    if not text:
        return None
    at_s, _, call_id = text.partition("_")
    number = _number(at_s)
    if number is None or not call_id:
        raise Problem(422, "after must be the `next` of the page before.", "invalid_query", "after")
    return number, call_id


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
