"""How much of a list is asked for at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fastapi import Request, Response

from services.registry.http.exchange import Problem, answer
from services.registry.io.rows import Page

T = TypeVar("T")

LARGEST_PAGE = 1000
_MOST_DIGITS = 4


def page_of(request: Request) -> Page:
    """The query's `after` and `limit`. Raises Problem."""
    return Page(after=request.query_params.get("after", ""), limit=page_size(request))


def paged(name: str, rows: Sequence[T], page: Page, key: Callable[[T], str], shown: Callable[[T], object]) -> Response:
    """The rows under `name`; `next` is what to pass as `after` for those that follow, if there may be any."""
    following = key(rows[-1]) if rows and len(rows) == page.limit else None
    return answer({name: [shown(row) for row in rows], "next": following})


def page_size(request: Request) -> int:
    """The query's `limit`, by default as much as there may be. Raises Problem."""
    limit = request.query_params.get("limit", str(LARGEST_PAGE))
    if not (limit.isascii() and limit.isdecimal()) or len(limit) > _MOST_DIGITS or not 0 < int(limit) <= LARGEST_PAGE:
        raise Problem(422, f"limit must be a number from 1 to {LARGEST_PAGE}.", "invalid_query", "limit")
    return int(limit)
