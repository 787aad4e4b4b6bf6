"""Requests on a slot whose load is not proven: they run, and nothing of what they produce leaves the worker."""

from __future__ import annotations

import asyncio

from services.replica_worker.engine.port import Engine, EngineRequest
from services.replica_worker.requests.admission import RefusedHere, refusal_of
from services.replica_worker.requests.running import Running
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable


class Ride:
    """One request, from the step that computes its prompt beside the probe until the proof is in."""

    def __init__(self, running: Running, prepared: EngineRequest, engine: Engine) -> None:
        self._running = running
        self._prepared = prepared
        self._engine = engine
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def enter(self) -> None:
        if self.end.done():
            return  # the request has ended, and its admission is about to notice
        self._running.held = []
        self._running.submitted = True
        self._engine.submit(self._prepared)

    def withdraw(self) -> None:
        self._engine.abort(self._prepared.request_id)
        self._running.held = []

    def proven(self) -> None:
        if not self.end.done():
            self.end.set_result(None)

    def refused(self, error: Exception) -> None:
        if not self.end.done():
            self.end.set_exception(error)


async def until_proven(running: Running, prepared: EngineRequest, engine: Engine) -> None:
    """Returns once the request's slot is proven: at once if it is already, or if it needs none. Otherwise the
    request is in the engine by then, and its tokens so far are in `running.held`.

    Raises RefusedHere, EngineFailed: no token of it may leave then.
    """
    reference = running.reference
    if reference is None or reference.proof.proven or prepared.max_tokens < 1:
        return
    ride = Ride(running, prepared, engine)
    reference.proof.ride(ride)
    try:
        await ride.end
    except (AdapterFailed, AdapterUnavailable) as error:
        raise RefusedHere(refusal_of(error)) from error
    finally:
        reference.proof.leave(ride)
