"""Moving from one base model to another: the plan, the migration, its items, and aliases one by one."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from services.registry.base_migration.base_moves import Story
from services.registry.base_migration.move_planning import Route
from services.registry.base_migration.moving import Moving
from services.registry.core.base_migration.move_items import ITEM_STATES, Item
from services.registry.core.base_migration.move_plan import Terms
from services.registry.core.base_migration.moves import Migration
from services.registry.core.base_migration.pointers import StillNeeded
from services.registry.http.exchange import Problem, answer, body, granted, registry_of
from services.registry.http.migration_bodies import CutoverBody, RetryBody, RollbackBody, StartBody, TurnBody, cost_of
from services.registry.http.paging import page_size
from services.registry.http.pointing import in_use
from services.registry.io.migration_rows import ItemFilter

_TURNS = {"hold": "held", "resume": "running", "cancel": "cancelled"}

router = APIRouter()


@router.get("/migrations/plan")
async def plan(request: Request) -> Response:
    """A page of adapters by id; `totals` of all pages stand on the first."""
    limit, after = page_size(request), request.query_params.get("after", "")
    found = granted(await _moving(request).planning.plan(_route(request), after, limit))
    full = len(found.rows) == limit
    return answer({"rows": found.rows, "totals": found.totals, "next": found.rows[-1].adapter_id if full else None})


@router.post("/migrations")
async def start(request: Request) -> Response:
    said = await body(request, StartBody)
    started = granted(await _moving(request).migrations.begin(said.route, said.turn))
    return answer(started.migration, 201 if started.created else 200)


@router.get("/migrations")
async def listed(request: Request) -> Response:
    return answer({"migrations": await _moving(request).migrations.listed()})


@router.get("/migrations/{migration_id}")
async def one(request: Request, migration_id: str) -> Response:
    return answer(_told(granted(await _moving(request).migrations.story(migration_id))))


@router.get("/migrations/{migration_id}/items")
async def items(request: Request, migration_id: str) -> Response:
    """A page of items by adapter; `next` is what to pass as `after` for the next one."""
    asked, limit = request.query_params, page_size(request)
    if (state := asked.get("state") or None) not in (None, *ITEM_STATES):
        raise Problem(422, f"state must be one of {', '.join(ITEM_STATES)}.", "invalid_query", "state")
    wanted = ItemFilter(states=(state,) if state else (), after=asked.get("after", ""), limit=limit)
    found = granted(await _moving(request).migrations.items(migration_id, wanted))
    shown = [_shown(request, item) for item in found]
    return answer({"items": shown, "next": found[-1].adapter_id if len(found) == limit else None})


@router.post("/migrations/{migration_id}/cutover")
async def cut_over(request: Request, migration_id: str) -> Response:
    said = await body(request, CutoverBody)
    cutovers = _moving(request).cutovers
    return answer(granted(await cutovers.cut_over(migration_id, said.alias, said.turn, force=said.force)))


@router.post("/migrations/{migration_id}/rollback")
async def roll_back(request: Request, migration_id: str) -> Response:
    said = await body(request, RollbackBody)
    return answer(granted(await _moving(request).cutovers.roll_back(migration_id, said.alias, said.turn)))


@router.post("/migrations/{migration_id}/retry")
async def retry(request: Request, migration_id: str) -> Response:
    said = await body(request, RetryBody)
    item = granted(await _moving(request).migrations.retry(migration_id, said.adapter_id, said.turn))
    return answer(_shown(request, item))


@router.post("/migrations/{migration_id}/finish")
async def finish(request: Request, migration_id: str) -> Response:
    """With many adapters it takes several calls: until `left` is 0."""
    said = await body(request, TurnBody, absent=TurnBody())
    outcome = await _moving(request).endings.finish(migration_id, said.turn)
    if isinstance(outcome, StillNeeded):
        raise in_use(outcome)
    ending = granted(outcome)
    return answer({**_plain(ending.migration), "left": ending.left})


@router.post("/migrations/{migration_id}/{change}")
async def turn(request: Request, migration_id: str, change: str) -> Response:
    """Hold, resume or cancel."""
    if change not in _TURNS:
        raise Problem(404, f"A migration can be {', '.join(_TURNS)}; there is no {change[:64]!r}.", "not_served")
    said = await body(request, TurnBody, absent=TurnBody())
    return answer(granted(await _moving(request).migrations.turn(migration_id, _TURNS[change], said.turn)))


def _moving(request: Request) -> Moving:
    return registry_of(request).moving


def _route(request: Request) -> Route:
    asked, terms = request.query_params, Terms()
    return Route(
        from_base_model_hash=asked.get("from", ""),
        to_base_model_hash=asked.get("to", ""),
        terms=Terms(
            gpu_hours_each=cost_of("gpu_hours", asked.get("gpu_hours", str(terms.gpu_hours_each))),
            usd_per_gpu_hour=cost_of("usd_per_gpu_hour", asked.get("usd_per_gpu_hour", str(terms.usd_per_gpu_hour))),
        ),
    )


def _told(story: Story) -> dict[str, Any]:
    return {**_plain(story.migration), "progress": story.progress}


def _shown(request: Request, item: Item) -> dict[str, Any]:
    return {**_plain(item), "overdue": _moving(request).migrations.is_overdue(item)}


def _plain(struct: Migration | Item) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(struct)
    return plain
