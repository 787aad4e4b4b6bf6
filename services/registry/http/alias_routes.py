"""Deploying, splitting and rolling back.

An alias holds one slash, so what is done with it is the third part of a path: `acme/split` is an alias like others.
"""

from __future__ import annotations

import re

from fastapi import APIRouter, Request, Response

from services.registry.core.deployment.aliases import AliasState, Change, Denied
from services.registry.deployment.alias_decisions import unknown_alias
from services.registry.deployment.aliasing import OPERATOR
from services.registry.http.alias_bodies import AliasBody, ChangeBody, PromoteBody, SplitBody
from services.registry.http.exchange import Problem, answer, body, granted, registry_of
from services.registry.http.paging import page_size
from services.registry.io.alias_rows import AliasFilter

_REVISION = re.compile(r'"([1-9][0-9]{0,17})"')
_MOST_DIGITS = 18

router = APIRouter()


@router.get("/aliases")
async def listed(request: Request) -> Response:
    """A page of aliases by name; `next` is what to pass as `after` for the next one."""
    asked = request.query_params
    wanted = AliasFilter(
        tenant_id=asked.get("tenant_id") or None, after=asked.get("after", ""), limit=page_size(request)
    )
    found = await registry_of(request).aliasing.listed(wanted)
    full = len(found) == wanted.limit
    return answer({"aliases": found, "next": found[-1].alias if full else None})


@router.get("/aliases/{tenant}/{name}/history")
async def history(request: Request, tenant: str, name: str) -> Response:
    """A page of what the alias came to mean, newest first."""
    alias, limit = _alias(tenant, name), page_size(request)
    after = request.query_params.get("after", "")
    if after and (not after.isdecimal() or len(after) > _MOST_DIGITS):
        raise Problem(422, "after must be the `next` of a page before.", "invalid_query", "after")
    found = await registry_of(request).aliasing.history(alias, before=int(after) if after else None, limit=limit)
    if not found and not after:
        granted(unknown_alias(alias))
    return answer({"history": found, "next": str(found[-1].row_id) if len(found) == limit else None})


@router.get("/aliases/{alias:path}")
async def one(request: Request, alias: str) -> Response:
    state = await registry_of(request).aliasing.find(alias)
    return _tagged(unknown_alias(alias) if state is None else state)


@router.post("/aliases/{tenant}/{name}/rollback")
async def roll_back(request: Request, tenant: str, name: str) -> Response:
    said = await body(request, ChangeBody, absent=ChangeBody())
    return _tagged(
        await registry_of(request).aliasing.roll_back(_alias(tenant, name), change=said.change(_if_match(request)))
    )


@router.put("/aliases/{tenant}/{name}/split")
async def split(request: Request, tenant: str, name: str) -> Response:
    said = await body(request, SplitBody)
    change = said.change(_if_match(request), said.guard)
    return _tagged(
        await registry_of(request).aliasing.split(_alias(tenant, name), said.adapter_id, said.percent, change=change)
    )


@router.delete("/aliases/{tenant}/{name}/split")
async def unsplit(request: Request, tenant: str, name: str) -> Response:
    return _tagged(await registry_of(request).aliasing.unsplit(_alias(tenant, name), change=_asked(request)))


@router.post("/aliases/{tenant}/{name}/promote")
async def promote(request: Request, tenant: str, name: str) -> Response:
    said = await body(request, PromoteBody, absent=PromoteBody())
    change = said.change(_if_match(request), said.guard)
    return _tagged(await registry_of(request).aliasing.promote(_alias(tenant, name), change=change))


@router.put("/aliases/{alias:path}")
async def deploy(request: Request, alias: str) -> Response:
    said = await body(request, AliasBody)
    change = said.change(_if_match(request), said.guard)
    return _tagged(await registry_of(request).aliasing.deploy(alias, said.adapter_id, change=change))


@router.delete("/aliases/{alias:path}")
async def remove(request: Request, alias: str) -> Response:
    return answer(granted(await registry_of(request).aliasing.remove(alias, change=_asked(request))))


def _alias(tenant: str, name: str) -> str:
    return f"{tenant}/{name}"


def _asked(request: Request) -> Change:
    """Of a DELETE, which has no body: by whom, why and whether by force stand in the query."""
    said = request.query_params
    return Change(
        actor=said.get("by") or OPERATOR, reason=said.get("reason", ""), if_match=_if_match(request),
        force=said.get("force") == "true",
    )  # fmt: skip


def _if_match(request: Request) -> int | None:
    """The revision that the alias must be at; 0 if it must not exist. Raises Problem."""
    if request.headers.get("if-none-match", "").strip() == "*":
        return 0
    header = request.headers.get("if-match")
    if header is None:
        return None
    if (revision := _REVISION.fullmatch(header.strip())) is None:
        raise Problem(422, 'If-Match must be an ETag of this alias, such as "3".', "invalid_etag", "if-match")
    return int(revision[1])


def _tagged(outcome: AliasState | Denied) -> Response:
    state = granted(outcome)
    response = answer(state)
    response.headers["etag"] = f'"{state.revision}"'
    return response
