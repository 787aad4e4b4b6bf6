"""The load tool on a real gateway: what it says it saw is what the gateway and its replicas did."""

from __future__ import annotations

import pytest

from loadtest.driver.asking import Target
from loadtest.driver.checking import Markers
from loadtest.driver.figures import Asked, summary
from loadtest.driver.planned import Planned
from loadtest.driver.running import Limits, drive
from shared.messages.generation import GenerateRequest
from tests.support.gateway_world import ALIAS_NAME, BASE_NAME, FOREIGN_ALIAS, FOREIGN_KEY, KEY, gateway_world
from tests.support.scripted_replica import Script, ScriptedReplica, says

pytestmark = pytest.mark.deadline(30)


def asks(count: int, alias: str) -> list[Planned]:
    return [Planned(at_s=0.001 * at, alias=alias, prompt_tokens=20, max_tokens=8) for at in range(count)]


def by_adapter(**scripts: Script) -> Script:
    """The script of the tenant whose adapter is asked."""

    async def script(replica: ScriptedReplica, request: GenerateRequest) -> None:
        named = (request.adapter_id or "base").partition("-")[0]
        await scripts[named](replica, request)

    return script


async def test_figures_tiers_and_markers_are_those_of_the_answers() -> None:
    script = by_adapter(acme=says("AC", "ME", tier="ram"), globex=says("ACME", tier="disk"), base=says("nothing"))
    load = sorted(asks(40, ALIAS_NAME) + asks(10, FOREIGN_ALIAS) + asks(5, BASE_NAME), key=lambda one: one.at_s)
    async with gateway_world(script, script) as world:
        target = Target(url=world.url, key=KEY, keys={"globex": FOREIGN_KEY})
        markers = Markers({ALIAS_NAME: "ACME", FOREIGN_ALIAS: "GLOBEX"})
        run = await drive(target, load, Limits(), content=markers.judge)
    figures = summary(run, Asked(goals={"e2el": 20_000.0}))
    assert figures["failures"] == {}
    assert {tier: found["completed"] for tier, found in figures["by_tier"].items()} == {"disk": 10, "gpu": 5, "ram": 40}
    assert figures["contents"] == {"own": 45, "wrong_marker": 10}
    assert figures["total_output_tokens"] == 40 * 2 + 10 + 5
    assert figures["goodput_share"] == 1.0
    assert {row["name"]: row["requests"] for row in figures["by_customer"]["busiest"]}["acme"] == 40


async def test_refusals_and_answers_that_break_off_are_told_apart() -> None:
    async def breaks_off(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.queue(request)
        await replica.accept(request)
        await replica.say(request, "a")
        await replica.finish(request, reason="error")

    async def refuses(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.refuse(request, "overloaded", elsewhere=False, message="Too much.")

    script = by_adapter(acme=breaks_off, globex=refuses)
    load = [*asks(3, ALIAS_NAME), *asks(2, FOREIGN_ALIAS), *asks(1, "acme/none:prod")]
    async with gateway_world(script, script) as world:
        target = Target(url=world.url, key=KEY, keys={"globex": FOREIGN_KEY})
        run = await drive(target, sorted(load, key=lambda one: one.at_s))
    failures = summary(run, Asked())["failures"]
    assert failures.pop("error event") == 3
    assert failures.pop("404") == 1
    assert sum(failures.values()) == 2
    assert all(status.startswith(("429", "503")) for status in failures)
