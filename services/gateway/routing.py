"""Asks the core who gets a request; counts what it says, and writes some of it down."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from services.gateway.core import refusal
from services.gateway.core.fleet import Fleet
from services.gateway.core.question import Choice, NoChoice, Question, RoutingPolicy, Strategy
from services.gateway.core.routing import is_sampled, route
from shared.messages.generation import Accepted, Answer, Refused
from shared.messages.identity import AdapterKey
from shared.runtime.logs import get_logger
from shared.runtime.metrics import Metrics

_log = get_logger(__name__)


class Routing:
    """`draw` is uniform from 0 up to 1. One decision in `log_one_in` is logged; with 0, none."""

    def __init__(
        self, fleet: Fleet, policy: RoutingPolicy, metrics: Metrics, draw: Callable[[], float], log_one_in: int
    ) -> None:
        self._fleet = fleet
        self._policy = policy
        self._draw = draw
        self._log_one_in = log_one_in
        self._decisions = metrics.counter(
            "route_decisions_total", "Choices of a replica, by pool and the rule that decided.", ["pool", "rule"]
        )
        self._counts: dict[tuple[str, str], Callable[[], None]] = {}
        self._failed_loads = metrics.counter(
            "failed_loads_total", "Refusals after which a replica was left alone with an adapter for a while."
        )

    def choose(self, question: Question, strategy: Strategy | None, call_id: str, now_s: float) -> Choice | NoChoice:
        """`strategy` instead of the policy's own, for this request."""
        policy = self._policy if strategy is None else msgspec.structs.replace(self._policy, strategy=strategy)
        draw = self._draw()
        choice = route(self._fleet, question, policy, now_s, draw)
        if isinstance(choice, Choice):
            pool_id, replica_id, rule = choice.pool_id, choice.replica_id, choice.rule
        else:
            pool_id, replica_id, rule = question.pool_ids[0], "", "nobody"
        self._count(pool_id, rule)
        if is_sampled(draw, self._log_one_in):
            adapter_id = question.adapter.adapter_id if question.adapter is not None else None
            _log.info(
                "a request was routed", call_id=call_id, adapter_id=adapter_id, pool_id=pool_id, replica_id=replica_id,
                rule=rule, reason=choice.reason, tokens=question.tokens, tried=len(question.tried),
            )  # fmt: skip
        return choice

    def _count(self, pool_id: str, rule: str) -> None:
        """One more. Its series is looked up once: the metric would do so under a lock, with every request."""
        count = self._counts.get((pool_id, rule))
        if count is None:
            count = self._counts[pool_id, rule] = self._decisions.labels(pool_id, rule).inc
        count()

    def heard(self, answer: Answer, adapter: AdapterKey | None, now_s: float) -> None:
        """What a replica's answer to a request says about its loads."""
        if adapter is None:
            return
        if isinstance(answer, Accepted):
            self._fleet.on_loaded(answer.replica_id, adapter)
        elif isinstance(answer, Refused) and refusal.is_failed_load(answer):
            until_s = self._fleet.on_load_failed(answer.replica_id, adapter, now_s)
            self._failed_loads.inc()
            _log.warning(
                "a replica could not load an adapter and is left alone with it", replica_id=answer.replica_id,
                adapter_id=adapter.adapter_id, for_s=round(until_s - now_s, 1), reason=answer.message,
            )  # fmt: skip
