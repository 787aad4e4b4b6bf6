"""May a request run here at all? Decided before anything is fetched, loaded or tokenized for it."""

from __future__ import annotations

import msgspec

from shared.messages.generation import GenerateRequest
from shared.messages.identity import AdapterKey

from .tokens import LONGEST_RETRY_S, retry_after_s

FETCHING_SHARE = 0.8
"""How much of the time to its first token a request may spend on a fetch: the rest is for its slot and its turn."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is one of generation.REFUSALS; `reason` is the sentence that the client reads."""

    code: str
    reason: str
    elsewhere: bool
    retry_after_s: float | None = None


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
    return None
