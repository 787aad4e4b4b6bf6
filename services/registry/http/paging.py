"""How much of a list is asked for at a time."""

from __future__ import annotations

from fastapi import Request

from services.registry.http.exchange import Problem

LARGEST_PAGE = 1000
_MOST_DIGITS = 4


def page_size(request: Request) -> int:
    """The query's `limit`, by default as much as there may be. Raises Problem."""
    limit = request.query_params.get("limit", str(LARGEST_PAGE))
    if not limit.isdecimal() or len(limit) > _MOST_DIGITS or not 0 < int(limit) <= LARGEST_PAGE:
        raise Problem(422, f"limit must be a number from 1 to {LARGEST_PAGE}.", "invalid_query", "limit")
    return int(limit)
