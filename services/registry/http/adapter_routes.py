"""Registering adapters, looking at them, pinning and retiring them; and the files they come from."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from services.registry.adapters import unknown_adapter
from services.registry.core.records import StoredAdapter
from services.registry.http.bodies import AdapterBody
from services.registry.http.exchange import Problem, answer, body, granted, limited, registry_of, rejection
from services.registry.http.paging import page_size
from services.registry.io.adapter_rows import AdapterFilter
from services.registry.registration.outcomes import Rejected
from shared.messages.adapters import STATES, AdapterRegistered

OFFSET = "upload-offset"
_MOST_OFFSET_DIGITS = 15

router = APIRouter()


@router.post("/adapters")
async def register(request: Request) -> Response:
    announced, registry = await body(request, AdapterRegistered), registry_of(request)
    with registry.precedence.going():
        outcome = await registry.registrations.register(announced)
    if isinstance(outcome, Rejected):
        raise rejection(outcome.defects)
    registered = granted(outcome)
    return answer(shown(registered.adapter), 201 if registered.created else 200)


@router.get("/adapters")
async def listed(request: Request) -> Response:
    """A page of adapters by id; `next` is what to pass as `after` for the next one."""
    wanted = _filter(request)
    found = await registry_of(request).adapters.listed(wanted)
    full = len(found) == wanted.limit
    return answer({"adapters": [shown(one) for one in found], "next": found[-1].adapter_id if full else None})


@router.get("/adapters/{adapter_id}")
async def one(request: Request, adapter_id: str) -> Response:
    story = await registry_of(request).adapters.story(adapter_id)
    if story is None:
        raise _missing(adapter_id)
    more = {"history": story.history, "evaluations": story.evaluations, "aliases": story.aliases}
    return answer({**shown(story.adapter), **more})


@router.patch("/adapters/{adapter_id}")
async def change(request: Request, adapter_id: str) -> Response:
    wanted = await body(request, AdapterBody)
    return answer(shown(granted(await registry_of(request).adapters.pin(adapter_id, wanted.pinned))))


@router.post("/adapters/{adapter_id}/retire")
async def retire(request: Request, adapter_id: str) -> Response:
    return answer(shown(granted(await registry_of(request).adapters.retire(adapter_id))))


@router.api_route("/uploads/{sha256}", methods=["GET", "HEAD"])
async def standing(request: Request, sha256: str) -> Response:
    """How many bytes of a file are safe here: where a PUT is to go on."""
    found = granted(await registry_of(request).uploads.standing(sha256))
    answered = answer(found)
    answered.headers[OFFSET] = str(found.offset_bytes)
    return answered


@router.put("/uploads/{sha256}")
async def upload(request: Request, sha256: str) -> Response:
    """The file from byte `Upload-Offset` (left out: 0) to its end."""
    registry, start = registry_of(request), _offset(request)
    uploads = registry.uploads
    try:
        chunks = limited(request, uploads.policy.largest_file_bytes - start)
        with registry.precedence.going():
            return answer({"weights_uri": granted(await uploads.receive(sha256, start, chunks))}, 201)
    except Problem as problem:
        if problem.status == 413:
            await uploads.discard(sha256)
        raise


def shown(adapter: StoredAdapter) -> dict[str, Any]:
    """An adapter as operators see it: one flat object, its digest by name, without PEFT's long words."""
    plain: dict[str, Any] = msgspec.to_builtins(adapter)
    announced = plain.pop("announced")
    del announced["peft_config"]
    return {**announced, **plain, "digest": adapter.digest}


def _filter(request: Request) -> AdapterFilter:
    asked = request.query_params
    status = asked.get("status") or None
    if status is not None and status not in STATES:
        raise Problem(422, f"status must be one of {', '.join(STATES)}.", "invalid_query", "status")
    return AdapterFilter(
        tenant_id=asked.get("tenant_id") or None,
        statuses=() if status is None else (status,),
        after=asked.get("after", ""),
        limit=page_size(request),
    )


def _offset(request: Request) -> int:
    text = request.headers.get(OFFSET, "0")
    if not text.isdecimal() or len(text) > _MOST_OFFSET_DIGITS:
        raise Problem(422, "Upload-Offset must be a number of bytes.", "invalid_header", OFFSET)
    return int(text)


def _missing(adapter_id: str) -> Problem:
    denied = unknown_adapter(adapter_id)
    return Problem(404, denied.message, denied.code)
