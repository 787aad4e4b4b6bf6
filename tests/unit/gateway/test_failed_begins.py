"""A request that fails at whatever step of its beginning leaves nothing of its limits behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from services.gateway import app
from services.gateway.app import Draws, Gateway
from services.gateway.conversation import Policies
from services.gateway.conversations import Conversations
from services.gateway.core.allowance import LeasePolicy, Subject
from services.gateway.core.allowances import Allowances
from services.gateway.core.company import Company
from services.gateway.core.directory import Caller, Target
from services.gateway.core.question import Choice
from services.gateway.core.stream import StreamPolicy
from services.gateway.core.wish import Prompt, Wish
from services.gateway.exchange import Admitted
from services.gateway.limits import Limits, LimitsMeans
from services.gateway.records import RequestRecord, usage_of
from shared.messages.desired import Limits as Limited
from shared.runtime.clock import Clock, ManualClock
from shared.runtime.metrics import Metrics
from tests.support.limits_counter import Office
from tests.unit.gateway.samples import ADAPTER, POOL

LIMITED = Limited(requests_per_min=100, tokens_per_min=10_000, streams=8)


class Planted(Exception):
    pass


class Again(Exception):
    pass


def failing(call: Callable[..., Any], turn: int) -> Callable[..., Any]:
    """The same, but for the call of this number."""
    calls = iter(range(1_000))

    def called(*args: Any, **named: Any) -> Any:
        if next(calls) == turn:
            raise Planted
        return call(*args, **named)

    return called


class World:
    """A gateway with limits by a ledger on paper, among parts that do nothing."""

    def __init__(self) -> None:
        self.clock = clock = ManualClock()
        self.office = Office(clock)
        self.allowances = Allowances("g", LeasePolicy())
        means = LimitsMeans(allowances=self.allowances, company=Company("g"), wait_s=20.0, places_wait_s=20.0)
        self.limits = Limits(self.office, means, clock, Metrics("gateway"))
        self.desk = desk = Mock(clock=clock, gateway_id="g")
        desk.tracer.begin.return_value.traceparent = ""
        desk.policies = Policies(streams=StreamPolicy(), most_waiting_bytes=1_000)
        desk.routing.choose.return_value = Choice(
            replica_id="r", pool_id=POOL, incarnation="r-1", reason="the resident owner", rule="resident"
        )
        desk.records.ended.side_effect = self.ended
        following, directory = Mock(), Mock()
        following.not_full.return_value = None
        directory.resolve.return_value = Target(
            tenant_id="acme", adapter=ADAPTER, pool_ids=(POOL,), base_model_hash="b" * 64, max_context_tokens=100
        )
        conversations = Conversations(desk)
        audience = Mock(directory=directory, conversations=conversations, limits=self.limits)
        ids = iter(range(1_000))
        draws = Draws(unique_id=lambda: f"q{next(ids)}", seed=lambda: 7)
        self.gateway = Gateway(desk, audience, following, draws)

    def ended(self, record: RequestRecord, clock: Clock) -> None:
        self.limits.settle(usage_of(record, clock))

    async def begin(self) -> Any:
        subject = Subject(name="tenant acme", limits=LIMITED)
        caller = Caller(key_id="k", tenant_id="acme", may_call_base=False, limited=(subject,))
        wish = Wish(model="acme/support", prompts=(Prompt(text="hello"), Prompt(text="you")), stream=True)
        return await self.gateway.begin(caller, wish, "x")

    @property
    def running(self) -> int:
        [account] = self.allowances._accounts.values()
        assert account.streams is not None
        assert (account.under_way > 0) == (account.streams.used > 0) == bool(self.limits._open)
        return account.streams.used

    async def ledger_holds(self, places: int) -> None:
        """Returns when it does."""
        while self.office.paper.held("tenant acme") != places:
            await self.limits.turn()
            await asyncio.sleep(0)


STEPS = [
    *[(f"desk.{part}", turn) for turn in (0, 1) for part in (
        "tracer.begin", "routing.choose", "post.generate", "fleet.sends", "records.streams.inc", "records.began",
    )],
    ("limits.rest", 0), ("gateway._terms", 0), ("allowances.rest", 0),
]  # fmt: skip


@pytest.mark.parametrize(("step", "turn"), STEPS, ids=[f"{step} {turn}" for step, turn in STEPS])
async def test_whatever_fails_while_a_request_begins_it_holds_nothing(
    step: str, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    assert isinstance(await world.begin(), Admitted)
    *path, name = step.split(".")
    part: Any = world
    for each in path:
        part = getattr(part, each)
    monkeypatch.setattr(part, name, failing(getattr(part, name), turn))
    with pytest.raises(Planted):
        await world.begin()
    await holds_two(world)


@pytest.mark.parametrize("made", ["Admitted", "Conversation", "Conversation 1"])
async def test_whatever_cannot_be_made_for_a_request_it_holds_nothing(
    made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    await world.begin()
    name, _, turn = made.partition(" ")
    monkeypatch.setattr(app, name, failing(getattr(app, name), int(turn or 0)))
    with pytest.raises(Planted):
        await world.begin()
    await holds_two(world)


async def test_what_fails_again_while_it_is_undone_holds_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    await world.begin()
    monkeypatch.setattr(world.desk.post, "generate", Mock(side_effect=Planted))
    monkeypatch.setattr(world.desk.post, "cancel", Mock(side_effect=Again))
    with pytest.raises(Again):
        await world.begin()
    await holds_two(world)


async def test_the_check_fails_for_a_gateway_that_does_not_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    await world.begin()
    monkeypatch.setattr(world.gateway, "_undo", lambda exchange, call_ids: None)
    monkeypatch.setattr(world.desk.post, "generate", Mock(side_effect=Planted))
    with pytest.raises(Planted):
        await world.begin()
    assert world.running == 4


async def test_a_call_whose_usage_cannot_be_noted_is_settled() -> None:
    world = World()
    world.desk.records.ended.side_effect = lambda record, clock: world.limits.settled_after(Mock(side_effect=Planted))(
        usage_of(record, clock)
    )
    exchange = await world.begin()
    for _ in range(2):  # one at a time
        with pytest.raises(Planted):
            exchange.leave("gone")
    assert world.running == 0


async def holds_two(world: World) -> None:
    """The streams of the request before it, and no other; and those are let go once."""
    assert world.running == 2
    await world.ledger_holds(2)
    failed = [call.args[0] for call in world.desk.records.ended.mock_calls]
    for record in failed:
        world.ended(record, world.clock)
    assert world.running == 2
    running = [*world.limits._open]
    world.limits.release([*running, *running])
    assert world.running == 0
    await world.ledger_holds(0)
    await world.clock.advance(LeasePolicy().lease_s)
    await world.limits.turn()
    paper = world.office.paper
    assert paper.used("tenant acme", "tokens") == 0
    await world.limits.stop()
