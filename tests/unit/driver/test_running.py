"""An open loop: requests leave when they are due, and what that costs in waiting is seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from loadtest.driver.asking import Target, Wording
from loadtest.driver.connection import Connection
from loadtest.driver.planned import Planned
from loadtest.driver.request import Request
from loadtest.driver.running import Driver, Limits, drive
from loadtest.driver.seen import Collected
from tests.unit.driver.stage import WHOLE, Respond, Visit, at, chunk, chunked, gives, head, said, serving, sized

OK = chunked(*WHOLE)

pytestmark = pytest.mark.deadline(20)


async def load(
    respond: Respond, requests: Iterator[Planned] | list[Planned], limits: Limits | None = None
) -> Collected:
    async with serving(respond) as url:
        return await drive(Target(url=url, key="sk-a"), requests, limits)


async def test_a_whole_answer_is_timed() -> None:
    visits: list[Visit] = []

    async def respond(visit: Visit) -> None:
        visits.append(visit)
        visit.write(OK)

    [one] = (await load(respond, [*at(0.0)])).seen
    assert (one.outcome, one.tier, one.tokens, one.prompt_tokens) == ("ok", "ram", 3, 7)
    assert one.ttft_s is not None
    assert 0 < one.delay_s <= one.ttft_s <= one.e2el_s
    body = visits[0].body
    assert (body["model"], body["stream"], body["max_tokens"]) == ("acme/a:prod", True, 3)
    assert "authorization: Bearer sk-a" in visits[0].head


async def test_nobody_waits_for_an_answer() -> None:
    """The planted server answers nobody before everybody has asked: a closed loop would wait for ever."""
    asked, everybody = 0, asyncio.Event()

    async def respond(visit: Visit) -> None:
        nonlocal asked
        asked += 1
        if asked == 30:
            everybody.set()
        await everybody.wait()
        visit.write(OK)

    run = await load(respond, [*at(*(0.002 * number for number in range(30)))])
    assert [one.outcome for one in run.seen] == ["ok"] * 30
    assert run.most_streams == 30


async def test_a_slow_server_does_not_hide_how_long_those_behind_it_waited() -> None:
    """With one stream at a time the second request cannot leave when it is due. A tool that counts from the moment
    of sending would call it quick."""
    let_go = asyncio.Event()

    async def respond(visit: Visit) -> None:
        asyncio.get_running_loop().call_later(0.2, let_go.set)
        await let_go.wait()
        visit.write(OK)

    run = await load(respond, [*at(0.0, 0.0, 0.05)], Limits(most_streams=1))
    first, second, third = run.seen
    assert second.delay_s > 0.15
    assert second.ttft_s is not None
    assert second.ttft_s > second.delay_s > first.delay_s
    assert third.delay_s > 0.1
    assert third.ttft_s is not None
    assert third.ttft_s > third.delay_s


async def test_a_tool_that_is_late_says_so_and_sends_what_was_due_meanwhile() -> None:
    def stalling() -> Iterator[Planned]:
        yield from at(0.0)
        until_s = time.monotonic() + 0.15
        while time.monotonic() < until_s:
            pass
        yield from at(0.01, 0.02)

    run = await load(gives(OK), stalling())
    assert [one.outcome for one in run.seen] == ["ok"] * 3
    late = sorted(run.seen, key=lambda one: one.at_s)[1:]
    assert all(one.delay_s > 0.1 and one.ttft_s is not None and one.ttft_s > 0.1 for one in late)


async def test_failures_are_counted_by_what_happened() -> None:
    async def respond(visit: Visit) -> None:
        kind = visit.body["model"]
        visit.write(
            {"busy": sized(503, b'{"error":{"message":"No owner."}}'), "short": chunked(said("a")), "gone": b""}.get(
                kind, OK
            )
        )
        if kind == "gone":
            visit.writer.transport.abort()

    kinds = ("busy", "short", "gone", "fine")
    run = await load(respond, [one for kind in kinds for one in at(0.0, alias=kind)])
    assert {one.alias: one.outcome for one in run.seen} == {
        "busy": "503",
        "short": "cut off",
        "gone": "cut off",
        "fine": "ok",
    }


async def test_a_stream_that_just_ends_is_cut_off() -> None:
    async def respond(visit: Visit) -> None:
        visit.write(head(200, "content-type: text/event-stream", "transfer-encoding: chunked") + chunk(said("a")))
        visit.writer.close()

    [one] = (await load(respond, [*at(0.0)])).seen
    assert (one.outcome, one.tokens) == ("cut off", 1)


async def test_nobody_there_and_no_http_are_outcomes_too() -> None:
    run = await drive(Target(url="http://127.0.0.1:9"), at(0.0, 0.0, 0.0), Limits(most_streams=1))
    assert [one.outcome for one in run.seen] == ["no connection"] * 3
    run = await load(gives(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), [*at(0.0)])
    assert [one.outcome for one in run.seen] == ["no HTTP"]


async def test_a_connection_serves_many_requests_and_one_that_says_close_none() -> None:
    numbers: list[int] = []

    def counting(answer: bytes) -> Respond:
        async def respond(visit: Visit) -> None:
            numbers.append(visit.number)
            visit.write(answer)

        return respond

    one_at_a_time = Limits(most_streams=1)
    await load(counting(OK), [*at(*[0.0] * 5)], one_at_a_time)
    assert numbers == [0, 1, 2, 3, 4]
    numbers.clear()
    closing = sized(200, b"".join(WHOLE), "content-type: text/event-stream", "connection: close")
    run = await load(counting(closing), [*at(*[0.0] * 3)], one_at_a_time)
    assert [one.outcome for one in run.seen] == ["ok"] * 3
    assert numbers == [0, 0, 0]


async def test_a_kept_connection_that_closes_as_it_is_used_is_no_failure_the_first_time() -> None:
    async def tired(visit: Visit) -> None:
        """Of a second request on one connection it reads all and says nothing."""
        if visit.number:
            visit.writer.transport.abort()
        else:
            visit.write(OK)

    run = await load(tired, [*at(0.0, 0.0, 0.0)], Limits(most_streams=1))
    assert [one.outcome for one in run.seen] == ["ok"] * 3


async def test_the_second_time_it_is_one() -> None:
    """Whatever connection it gets: a request that ends every connection is sent twice and no more."""
    driver, [planned] = Driver(Target(url="http://127.0.0.1:9"), Limits()), at(0.0)
    request = Request(driver, planned, b"")
    for _ in range(2):
        kept = Connection(lambda _: None, lambda _: None)
        kept.answers = 1
        kept.ask = lambda written, answer, ended: None  # type: ignore[method-assign]
        request.given(kept)
        request.ended("cut off", "")
    assert [one.outcome for one in driver.collected.seen] == ["cut off"]
    await driver.pool.close()


async def test_an_answer_has_its_time_and_no_more() -> None:
    never = asyncio.Event()

    async def respond(visit: Visit) -> None:
        await never.wait()

    run = await load(respond, [*at(0.0, 0.0)], Limits(most_streams=1, timeout_s=0.1))
    assert [one.outcome for one in run.seen] == ["timeout"] * 2
    assert all(one.e2el_s > 0.1 for one in run.seen)


async def test_stopping_keeps_what_was_measured_and_gives_up_the_rest() -> None:
    never = asyncio.Event()

    async def respond(visit: Visit) -> None:
        if visit.body["model"] == "quick":
            visit.write(OK)
        else:
            asyncio.get_running_loop().call_soon(driver.stop)
            await never.wait()

    async with serving(respond) as url:
        driver = Driver(Target(url=url), Limits())
        run = await driver.run([*at(0.0, alias="quick"), *at(0.1, alias="slow"), *at(3_600.0)])
    assert [(one.alias, one.outcome) for one in run.seen] == [("quick", "ok")]
    assert run.stopped == 1
    assert driver.stopped


async def test_the_warm_up_is_sent_and_does_not_count() -> None:
    run = await load(gives(OK), [*at(0.0, 0.01, 0.06)], Limits(warm_up_s=0.05))
    assert ([one.at_s for one in run.seen], run.warm_up) == ([0.06], 2)


async def test_a_load_of_nothing_is_over() -> None:
    assert (await load(gives(OK), [])).seen == []


async def test_what_is_no_stream_has_no_first_token() -> None:
    whole = b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"completion_tokens":1}}'
    [one] = (await load(gives(sized(200, whole)), [*at(0.0, stream=False)])).seen
    assert (one.outcome, one.ttft_s, one.tokens) == ("ok", None, 1)


async def test_every_tenant_asks_with_its_own_key_and_no_two_prompts_begin_alike() -> None:
    visits: list[Visit] = []

    async def respond(visit: Visit) -> None:
        visits.append(visit)
        visit.write(OK)

    async with serving(respond) as url:
        target = Target(url=f"{url}/v1", key="sk-rest", keys={"acme": "sk-acme"})
        asked = [*at(0.0, 0.0), *at(0.0, alias="globex/b")]
        await drive(target, asked, Limits(most_streams=1), Wording(more={"user": "x\n"}, seed=3))
    assert [visit.head.count("Bearer sk-acme") for visit in visits] == [1, 1, 0]
    assert visits[2].head.count("Bearer sk-rest") == 1
    assert visits[0].head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert {visit.body["user"] for visit in visits} == {"x\n"}
    assert len({visit.body["messages"][0]["content"][:4] for visit in visits}) == 3
