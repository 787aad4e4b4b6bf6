"""What requests add to the replica's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from services.replica_worker.engine.port import StepToken
from services.replica_worker.means import Means
from services.replica_worker.requests.dispatch import Dispatcher
from services.replica_worker.requests.running import Running


class Counting:
    def __init__(self, means: Means, dispatcher: Dispatcher) -> None:
        self._by = means
        self._dispatcher = dispatcher

    def step(self, tokens: Sequence[StepToken], served: Iterable[Running], over: frozenset[str]) -> None:
        """Of one engine step, whether or not its tokens may leave. `over`: the requests that have ended with it."""
        produced = Counter(token.request_id for token in tokens if token.error is None)
        self._by.capacity.step(produced, over, self._by.watch.running_now, self._by.clock.now_s())
        adapters = {running.request.digest for running in served} - {None}
        self._by.meters.distinct_adapters.observe(len(adapters))

    def proof(self, running: Running) -> None:
        """The slot is proven: so long have tokens waited for it that were there."""
        now_s = self._by.clock.now_s()
        since_s = now_s if running.held_since_s is None else running.held_since_s
        self._by.meters.proof_wait_s.observe(now_s - since_s)

    def resumed(self, running: Running, token: StepToken) -> None:
        if again := running.computed_again(token):
            self._by.meters.resumed_tokens_computed.inc(again)

    def left(self, tokens: int) -> None:
        """So many have left in one frame."""
        self._by.rate.add(tokens, self._by.clock.now_s())
        self._by.meters.tokens.inc(tokens)

    def tokens(self, running: Running, tokens: int) -> None:
        """They leave now, with others of which `left` is told."""
        self._dispatcher.served(running, tokens)
        if running.first_token_at_s is None and tokens:
            running.first_token_at_s = now_s = self._by.clock.now_s()
            if running.turn_at_s is not None:
                self._by.row_pace.began(now_s - running.turn_at_s, running.ahead)
            if running.in_line_at_s is not None and running.tier == "gpu":  # a slot's wait is none of the door's
                self._by.margin.began(now_s - running.in_line_at_s, running.request.objective_s, now_s)
            self._by.meters.first_token_s.labels(running.tier).observe(now_s - running.arrived_at_s)
