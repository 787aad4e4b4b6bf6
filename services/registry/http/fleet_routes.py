"""Operators' questions to placement and to single replicas."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from services.registry.adapters import unknown_adapter
from services.registry.core.lifecycle import HELD
from services.registry.core.records import StoredAdapter
from services.registry.http.bodies import LoadBody
from services.registry.http.exchange import Problem, answer, body, busy, granted, registry_of
from shared.bus.port import DeadlineExceeded, NoResponders
from shared.messages.identity import is_subject_token
from shared.messages.operations import HoldResult
from shared.messages.reports import TIERS

_LOADABLE = TIERS[:-1]
_SILENT = "Placement does not answer, and only it knows the fleet: its log says why."

router = APIRouter()


@router.get("/fleet")
async def fleet(request: Request) -> Response:
    try:
        return answer(await registry_of(request).fleet.view())
    except NoResponders as error:
        raise busy(_SILENT, "no_responders") from error
    except DeadlineExceeded as error:
        raise Problem(504, _SILENT, "no_answer") from error


@router.get("/replicas/{replica_id}/state")
async def state(request: Request, replica_id: str) -> Response:
    return answer(await registry_of(request).fleet.state(_token(replica_id)))


@router.post("/replicas/{replica_id}/adapters/{adapter_id}/load")
async def load(request: Request, replica_id: str, adapter_id: str) -> Response:
    wanted = await body(request, LoadBody, absent=LoadBody())
    if wanted.tier not in _LOADABLE:
        raise Problem(422, f"tier must be one of {', '.join(_LOADABLE)}.", "invalid_body", "tier")
    adapter = await _held(request, adapter_id)
    return answer(_done(await registry_of(request).fleet.load(_token(replica_id), adapter, wanted.tier)))


@router.post("/replicas/{replica_id}/adapters/{adapter_id}/unload")
async def unload(request: Request, replica_id: str, adapter_id: str) -> Response:
    adapter = await _known(request, adapter_id)
    return answer(_done(await registry_of(request).fleet.unload(_token(replica_id), adapter)))


def _token(replica_id: str) -> str:
    if not is_subject_token(replica_id):
        raise Problem(422, "A replica id is 1 to 64 of A-Z a-z 0-9 _ -.", "invalid_replica_id", "replica_id")
    return replica_id


async def _known(request: Request, adapter_id: str) -> StoredAdapter:
    adapter = await registry_of(request).adapters.find(adapter_id)
    return granted(unknown_adapter(adapter_id) if adapter is None else adapter)


async def _held(request: Request, adapter_id: str) -> StoredAdapter:
    adapter = await _known(request, adapter_id)
    if adapter.status not in HELD:
        message = f"Adapter {adapter_id} is {adapter.status}; no replica holds it."
        raise Problem(409, message, "adapter_not_active")
    return adapter


def _done(result: HoldResult) -> HoldResult:
    if not result.ok:
        raise Problem(409, f"The replica did not do it: {result.reason}.", "replica_declined")
    return result
