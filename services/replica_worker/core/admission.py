"""May a request run here at all? Decided before anything is fetched, loaded or tokenized for it."""

from __future__ import annotations

import msgspec

from shared.messages.generation import GenerateRequest
from shared.messages.identity import AdapterKey

from .row_pace import Forecast
from .tokens import LONGEST_RETRY_S, retry_after_s

FETCHING_SHARE = 0.8
"""How much of the time to its first token a request may spend on a fetch: the rest is for its slot and its turn."""
PATIENCE = 2.0
"""Times its objective: so long a request waits for a row, should those before it take longer than was foreseen."""
LEAST_WAIT = 0.25
"""A wait of so much of the objective is never too long, however slow first tokens are here."""
_BUSY = {"row": "All rows are taken", "prompts": "Other prompts are computed first"}


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is one of generation.REFUSALS; `reason` is the sentence that the client reads; `about` the field of the
    request that is at fault, if one is."""

    code: str
    reason: str
    elsewhere: bool
    retry_after_s: float | None = None
    about: str = ""


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """What the decision depends on, besides the request."""

    pool_id: str
    base_model_hash: str
    only: AdapterKey | None = None
    """The one adapter that is served here, merged into the base; None: any, and the base."""
    not_ready: str
    """Why the replica is not ready; "" if it is."""
    draining: bool
    waiting: int
    fetch_wait_s: float = 0.0
    """How long all that others wait for takes to come from the store before its adapter; 0 if that is here or comes."""
    turned_away_wait_s: float = 0.0
    """How long those take who were sent away for that before."""
    queue_limit: int
    tokens_in_flight: int
    tokens_per_s: float
    forecast: Forecast | None = None
    """When its turn would come; None: now, or nobody can tell."""
    comers_wait_s: float = 0.0
    """How long those take who were sent away for want of a row and will come again."""


def admit(request: GenerateRequest, door: Door) -> Refusal | None:
    """None: it may come in."""
    if door.not_ready:
        reason = f"This replica is not ready: {door.not_ready}."
        return Refusal(code="not_ready", reason=reason, elsewhere=True, retry_after_s=1.0)
    if door.draining:
        return Refusal(code="draining", reason="This replica is draining.", elsewhere=True)
    if request.pool_id != door.pool_id or request.base_model_hash != door.base_model_hash:
        return Refusal(
            code="wrong_pool", elsewhere=True,
            reason=f"This replica serves pool {door.pool_id}, the request is for {request.pool_id}.",
        )  # fmt: skip
    if door.only is not None and (request.adapter_id, request.digest) != (door.only.adapter_id, door.only.digest):
        reason = f"This replica serves {door.only.adapter_id} alone, merged into its base."
        return Refusal(code="wrong_pool", reason=reason, elsewhere=True)
    if (request.adapter_id is None) != (request.digest is None):
        return Refusal(
            code="invalid_request", elsewhere=False, reason="An adapter is named by its id and its digest together."
        )
    if door.waiting >= door.queue_limit:
        return Refusal(
            code="overloaded", elsewhere=True, reason=f"{door.waiting} requests are waiting here already.",
            retry_after_s=retry_after_s(door.tokens_in_flight, door.tokens_per_s),
        )  # fmt: skip
    late_s = door.fetch_wait_s - FETCHING_SHARE * request.deadline_s
    if late_s > 0:
        return Refusal(
            code="overloaded", elsewhere=True,
            retry_after_s=min(LONGEST_RETRY_S, max(1.0, late_s + door.turned_away_wait_s)),
            reason=f"The adapters that are being fetched here before this one take another {door.fetch_wait_s:.0f} s.",
        )  # fmt: skip
    return None if door.forecast is None else _if_late(request, door.forecast, door.comers_wait_s)


def given_up(objective_s: float, waited_s: float, free_rows: int, retry_s: float) -> Refusal | None:
    """What becomes of a request that has waited for its turn since it was ready for it: without an end to its
    patience, a burst that nobody foresaw would be served in full long after anybody wants it, and all who come
    meanwhile would be late as well."""
    if not objective_s or free_rows > 0 or waited_s < PATIENCE * objective_s:
        return None
    reason = "All rows are taken, and this request has waited too long for one."
    retry_s = min(LONGEST_RETRY_S, max(1.0, retry_s))
    return Refusal(code="overloaded", elsewhere=True, reason=reason, retry_after_s=retry_s)


def _if_late(request: GenerateRequest, forecast: Forecast, comers_wait_s: float) -> Refusal | None:
    """Whoever waits longer than it may is better told so at once: its row is then for somebody in time."""
    retry_s = min(LONGEST_RETRY_S, max(1.0, forecast.mean_s + comers_wait_s))
    turn = f"{_BUSY[forecast.awaits]}: the turn of this request would come in about {forecast.mean_s:.1f} s"
    if forecast.mean_s + forecast.first_token_s > request.deadline_s:
        reason = f"{turn}, and {request.deadline_s:.1f} s are left until its deadline."
        return Refusal(code="deadline", elsewhere=True, reason=reason, retry_after_s=retry_s)
    objective_s = request.objective_s
    longest_s = max(objective_s - forecast.first_token_s, LEAST_WAIT * objective_s)
    if objective_s and forecast.late_s > longest_s:
        reason = f"{turn}, too late for a first token in time."
        return Refusal(code="overloaded", elsewhere=True, reason=reason, retry_after_s=retry_s)
    return None
