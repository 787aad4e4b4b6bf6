"""A replica is asked before anything is done that it need not wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from services.gateway.app import Draws, Gateway
from services.gateway.conversation import Policies
from services.gateway.conversations import Conversations
from services.gateway.core.allowance import FREE
from services.gateway.core.directory import Caller, Target
from services.gateway.core.question import Choice
from services.gateway.core.stream import StreamPolicy
from services.gateway.core.wish import Prompt, Wish
from services.gateway.exchange import Admitted
from shared.runtime.tracing import NO_TRACER
from tests.unit.gateway.samples import ADAPTER, POOL


class World:
    """A gateway among parts that only note when they are called."""

    def __init__(self) -> None:
        self.noted = noted = Mock()
        desk = noted.desk
        desk.clock.now_s.return_value = desk.clock.wall_s.return_value = 0.0
        desk.policies = Policies(streams=StreamPolicy(), most_waiting_bytes=1_000)
        desk.tracer, desk.gateway_id = NO_TRACER, "g"
        desk.routing.choose.return_value = Choice(
            replica_id="r", pool_id=POOL, incarnation="r-1", reason="the resident owner", rule="resident"
        )
        noted.following.not_full.return_value = None
        noted.directory.resolve.return_value = Target(
            tenant_id="acme", adapter=ADAPTER, pool_ids=(POOL,), base_model_hash="b" * 64, max_context_tokens=100
        )
        noted.limits.admit.return_value = FREE
        noted.limits.rest.return_value = {"x-ratelimit-limit-requests": "5"}
        noted.limits.decided = self._decided
        audience = Mock(
            directory=noted.directory, conversations=Conversations(desk), limits=noted.limits, replicas=noted.replicas
        )
        self.gateway = Gateway(desk, audience, noted.following, Draws(unique_id=lambda: "q", seed=lambda: 7))

    async def begin(self) -> Any:
        caller = Caller(key_id="k", tenant_id="acme", may_call_base=False)
        wish = Wish(model="acme/support", prompts=(Prompt(text="hello"),), stream=True)
        return await self.gateway.begin(caller, wish, "x")

    async def _decided(self, decide: Callable[[bool], Any]) -> Any:
        return decide(False)

    def order(self, *names: str) -> list[str]:
        """Those of them that were called, in their order."""
        return [name for name, _, _ in self.noted.mock_calls if name in names]


async def test_a_request_leaves_before_it_is_counted_and_before_its_limits_are_told() -> None:
    world = World()
    exchange = await world.begin()
    assert isinstance(exchange, Admitted)
    assert exchange.limits == {"x-ratelimit-limit-requests": "5"}
    asked, *later = world.order(
        "limits.begin", "desk.post.generate", "desk.fleet.sends", "desk.records.streams.inc", "desk.records.began",
        "limits.rest",
    )[1:]  # fmt: skip
    assert asked == "desk.post.generate"
    assert later == ["desk.fleet.sends", "desk.records.streams.inc", "desk.records.began", "limits.rest"]


async def test_a_request_that_is_over_before_it_is_told_of_was_under_way_before() -> None:
    """What settles a request must find it: it is noted before anybody is asked."""
    world = World()
    await world.begin()
    assert world.order("limits.begin", "desk.post.generate")[0] == "limits.begin"
