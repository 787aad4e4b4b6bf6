"""A gateway's own count of its customers' requests, told of what happens in the twin."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from loadtest.twin.request import Request
from services.gateway.core import activity
from services.gateway.core.activity import ActivityPolicy
from shared.messages.activity import GatewayActivity

Steps = Callable[[], dict[str, int]]
"""How many steps of each replica are over."""


class Activity:
    def __init__(self, gateway_id: str, objective_s: float, steps: Steps) -> None:
        self._steps = steps
        self._counts = activity.Activity(gateway_id, ActivityPolicy(objective_ttft_s=objective_s), 0.0)

    def began(self, request: Request) -> None:
        """It is known who is asked first, or that nobody can be."""
        self._counts.began(request.pool_id, request.record.adapter_id)

    def first_token(self, request: Request, after_s: float) -> None:
        self._counts.first_token(request.pool_id, request.record.adapter_id, after_s)

    def ended(self, request: Request) -> None:
        if request.outcome == "ok":
            self._count(request, request.call.output_tokens)
            self._counts.finished(request.pool_id, request.record.adapter_id)
        elif request.first_s is None:
            self._counts.refused(request.pool_id)

    def message(self, live: Iterable[Request], now_s: float) -> GatewayActivity | None:
        """What happened since the last one; `live` requests' tokens so far are among it. None: nothing to say."""
        steps, count = self._steps(), self._counts.tokens
        for request in live:
            attempt = request.attempt
            if attempt is None or request.first_s is None:
                continue
            tokens = request.produced + attempt.produced
            if attempt.since_step >= 0:
                tokens += steps.get(attempt.replica_id, attempt.since_step) - attempt.since_step
            if tokens > request.counted:
                count(request.pool_id, request.record.adapter_id, tokens - request.counted)
                request.counted = tokens
        return self._counts.take(now_s)

    def _count(self, request: Request, tokens: int) -> None:
        more = tokens - request.counted
        if more > 0:
            request.counted = tokens
            self._counts.tokens(request.pool_id, request.record.adapter_id, more)
