"""Around the answer: who may enter, what is refused and how, and what probes and tools read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from services.gateway.__main__ import assemble
from shared.bus.memory import MemoryBroker
from shared.contracts.catalog import GATEWAY_REPORT
from shared.messages.identity import AdapterKey, key_of
from shared.messages.reports import GatewayReport
from shared.runtime.clock import ManualClock
from shared.runtime.http_server import HttpServer
from tests.support.gateway_world import (
    ADAPTER,
    ALIAS_NAME,
    BASE_NAME,
    FOREIGN_ALIAS,
    FOREIGN_KEY,
    KEY,
    SETTINGS,
    body,
    gateway_world,
    put_alias,
    write_directory,
)
from tests.support.scripted_replica import says

PATH = "/v1/chat/completions"
pytestmark = pytest.mark.deadline(30)


def error(response: httpx.Response, status: int) -> dict[str, str | None]:
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    found: dict[str, str | None] = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


async def test_c13_every_chunk_and_body_names_the_alias_and_the_header_the_adapter() -> None:
    async with gateway_world(says("a", "b")) as world, world.client() as client:
        whole = await client.post(PATH, json=body())
        streamed = await client.post(PATH, json=body(stream=True))
        assert whole.json()["model"] == ALIAS_NAME
        assert streamed.text.count(f'"model":"{ALIAS_NAME}"') == 3
        assert {r.headers["x-adapter-id"] for r in (whole, streamed)} == {ADAPTER.adapter_id}


async def test_a_split_alias_keeps_its_name_and_each_session_its_version() -> None:
    canary = AdapterKey(adapter_id="acme-support-2", digest="d" * 64)
    async with gateway_world(says("a")) as world, world.client() as client:
        await put_alias(world.broker.connect("registry"), ALIAS_NAME, "acme", ADAPTER, canary)
        await world.clock.advance(0.0)
        seen: dict[str, set[str]] = {}
        for turn in range(24):
            session = f"session-{turn % 8}"
            named = {"headers": {"x-session-id": session}} if turn < 8 else {}
            response = await client.post(PATH, json=body(user=session, stream=turn >= 16), **named)
            assert f'"model":"{ALIAS_NAME}"' in response.text
            seen.setdefault(session, set()).add(response.headers["x-adapter-id"])
        assert all(len(versions) == 1 for versions in seen.values())
        assert set().union(*seen.values()) == {ADAPTER.adapter_id, canary.adapter_id}


async def test_the_base_model_answers_to_its_name() -> None:
    async with gateway_world(says("a")) as world, world.client() as client:
        response = await client.post(PATH, json=body(model=BASE_NAME))
        assert (response.json()["model"], response.headers["x-adapter-id"]) == (BASE_NAME, "base")
        request = await world.replicas[0].asked.get()
        assert (request.adapter_id, request.digest) == (None, None)


async def test_c35_while_the_bus_is_away_a_known_alias_is_503_and_comes_back() -> None:
    async with gateway_world(says("a")) as world, world.client() as client:
        world.broker.disconnect(world.bus)
        waiting = asyncio.create_task(client.post(PATH, json=body()))
        unknown = await client.post(PATH, json=body(model="acme/unknown"))
        await world.arrived()
        await world.clock.advance(10.0)
        for response in (await waiting, unknown):
            assert error(response, 503)["message"] == "The gateway is out of touch with the fleet at the moment."
            assert response.headers["retry-after"] == "1"
        assert error(await client.get("/v1/models"), 503)
        assert (await client.get("/readyz")).status_code == 503
        world.broker.reconnect(world.bus)
        await world.replicas[0].report()
        assert (await client.post(PATH, json=body())).status_code == 200
        assert (await client.get("/readyz")).status_code == 200


async def test_a_request_that_comes_while_the_bus_is_away_for_a_moment_waits_for_it() -> None:
    async with gateway_world(says("a")) as world, world.client() as client:
        world.broker.disconnect(world.bus)
        waiting = asyncio.create_task(client.post(PATH, json=body()))
        await world.arrived()
        await world.clock.advance(0.4)
        assert not waiting.done()
        world.broker.reconnect(world.bus)
        await world.clock.advance(0.2)
        assert (await waiting).status_code == 200


async def test_until_the_directory_is_full_nobody_is_told_that_something_does_not_exist() -> None:
    broker = MemoryBroker()
    bus = broker.connect("gateway")
    broker.disconnect(bus)  # the bus comes up after this gateway
    await write_directory(broker.connect("registry"))
    assembly = assemble(SETTINGS, bus, ManualClock())
    for part in assembly.parts:
        await part.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{assembly.server.port}") as client:
        headers = {"authorization": f"Bearer {KEY}"}
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).text == "The gateway has not yet learnt who may call what.\n"
        assert error(await client.post(PATH, json=body(), headers=headers), 503)["code"] == "unavailable"
        assert error(await client.get("/v1/models", headers=headers), 503)
    for part in reversed(assembly.parts):
        await part.stop()


async def test_c59_own_aliases_are_listed_and_foreign_ones_do_not_exist() -> None:
    async with gateway_world(says("a")) as world, world.client(FOREIGN_KEY) as client:
        models = (await client.get("/v1/models")).json()
        assert models["object"] == "list"
        assert models["data"] == [
            {"id": FOREIGN_ALIAS, "object": "model", "created": 5, "owned_by": "globex", "parent": BASE_NAME}
        ]
        foreign = error(await client.post(PATH, json=body()), 404)
        unknown = error(await client.post(PATH, json=body(model="acme/nothing")), 404)
        assert foreign["code"] == "model_not_found"
        assert str(foreign).replace(ALIAS_NAME, "acme/nothing") == str(unknown)
        assert error(await client.get(f"/v1/models/{ALIAS_NAME}"), 404) == foreign
        assert (await client.get(f"/v1/models/{FOREIGN_ALIAS}")).json() == models["data"][0]
        assert world.replicas[0].asked.empty()


async def test_c60_only_the_key_says_who_asks() -> None:
    claims = {"x-tenant-id": "globex", "openai-organization": "globex", "x-forwarded-user": "globex"}
    async with gateway_world(says("a")) as world, world.client() as client:
        claimed = body(user="globex", tenant_id="globex", cache_salt=key_of("globex"), metadata={"tenant": "globex"})
        assert (await client.post(PATH, json=claimed, headers=claims)).status_code == 200
        request = await world.replicas[0].asked.get()
        assert (request.tenant_id, request.cache_salt) == ("acme", key_of("acme"))


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (b"{", None),
        (b'{"model": 5, "messages": [{"role": "user", "content": "x"}]}', "model"),
        (b'{"model": "acme/support:prod", "messages": "x"}', "messages"),
    ],
)
async def test_c81_a_bad_body_is_one_400(content: bytes, param: str | None) -> None:
    async with gateway_world(says("a")) as world, world.client() as client:
        response = await client.post(PATH, content=content)
        assert error(response, 400)["param"] == param
        assert response.headers["x-should-retry"] == "false"
        assert (await client.post(PATH, json=body())).status_code == 200


async def test_c81_20_mb_is_one_413_and_the_client_goes_on() -> None:
    async def chunked() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(1_000_000)

    async with gateway_world(says("a")) as world, world.client() as client:
        assert error(await client.post(PATH, content=bytes(20_000_000)), 413)["code"] == "request_too_large"
        assert error(await client.post(PATH, content=chunked()), 413)["code"] == "request_too_large"
        assert (await client.post(PATH, json=body())).status_code == 200


async def test_a_prompt_that_no_message_on_the_bus_can_hold_is_413() -> None:
    async with gateway_world(says("a")) as world, world.client() as client:
        text = "x" * 2_000_000
        long = [{"role": "user", "content": text}]
        told = error(await client.post(PATH, json=body(messages=long)), 413)
        assert told["param"] == "messages"
        assert told["message"].endswith("with tools, schema and stop texts it may have 1000000 bytes.")
        lone = {"model": ALIAS_NAME, "prompt": text}
        assert error(await client.post("/v1/completions", json=lone), 413)["param"] == "prompt"
        assert (await client.post(PATH, json=body())).status_code == 200


async def test_no_key_and_a_wrong_key_are_401() -> None:
    async with gateway_world(says("a")) as world, httpx.AsyncClient(base_url=world.url) as client:
        assert error(await client.post(PATH, json=body()), 401)["code"] == "invalid_api_key"
        wrong = {"authorization": "Bearer sk-wrong"}
        assert error(await client.post(PATH, json=body(), headers=wrong), 401)["code"] == "invalid_api_key"
        assert error(await client.get("/v1/models", headers=wrong), 401)["code"] == "invalid_api_key"


async def test_what_is_not_there_is_said_in_the_same_envelope() -> None:
    async with gateway_world() as world, world.client() as client:
        assert error(await client.get("/v1/nothing"), 404)["message"] == "There is nothing at /v1/nothing."
        wrong_method = await client.get(PATH)
        assert error(wrong_method, 405)["message"] == f"GET is not allowed at {PATH}."
        assert wrong_method.headers["allow"] == "POST"


async def test_no_key_follows_a_redirect() -> None:
    async with gateway_world() as world, world.client() as client:
        for path in (f"{PATH}/", "/healthz/"):
            assert error(await client.get(path), 404)["message"] == f"There is nothing at {path}."


async def test_a_request_id_is_echoed_and_never_used_on_the_bus() -> None:
    async with gateway_world(says("a")) as world, world.client() as client:
        ids = []
        for given in ("mine-1", "mine-1", "not a token", "x" * 65, "a.b.>"):
            response = await client.post(PATH, json=body(), headers={"x-request-id": given})
            ids.append((await world.replicas[0].asked.get()).request_id)
            assert (response.headers["x-request-id"] == given) == (given == "mine-1")
        assert len(set(ids)) == 5
        assert not any("mine" in bus_id for bus_id in ids)
        refused = await client.post(PATH, content=b"{", headers={"x-request-id": "mine-2"})
        assert refused.headers["x-request-id"] == "mine-2"


async def test_what_a_replica_is_asked() -> None:
    async with gateway_world(says("a")) as world, world.client() as client:
        await client.post(PATH, json=body(max_tokens=5, temperature=0, stop="END", seed=7))
        await client.post(PATH, json=body())
        first, second = await world.replicas[0].asked.get(), await world.replicas[0].asked.get()
        assert (first.adapter_id, first.digest) == (ADAPTER.adapter_id, ADAPTER.digest)
        assert (first.sampling.seed, first.sampling.max_tokens, first.sampling.stop) == (7, 5, ("END",))
        assert (first.deadline_s, first.attempt) == (60.0, 0)
        assert second.sampling.seed != first.sampling.seed


async def test_c68_the_resident_owner_is_asked_streamed_or_not() -> None:
    async with gateway_world(says("first"), says("second")) as world, world.client() as client:
        await world.replicas[1].hold(ADAPTER)
        for stream in (True, False):
            assert "second" in (await client.post(PATH, json=body(stream=stream))).text


async def test_every_connection_sends_tokens_at_once() -> None:
    """With Nagle's algorithm on, the second request of a kept-alive connection waits for an acknowledgement."""
    async with gateway_world(says("a")) as world, world.client() as client:
        for _ in range(2):
            await client.post(PATH, json=body(stream=True))
        [connection] = _connections(world.assembly.server)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


def _connections(server: HttpServer) -> list[socket.socket]:
    return [protocol.transport.get_extra_info("socket") for protocol in server.connections()]


async def test_the_lease_is_renewed_every_second_and_counts() -> None:
    reports: asyncio.Queue[GatewayReport] = asyncio.Queue()

    async def on_report(report: GatewayReport, ids: tuple[str, ...]) -> None:
        reports.put_nowait(report)

    async with gateway_world(says("a", "b")) as world, world.client() as client:
        await world.broker.connect("console").subscribe(GATEWAY_REPORT, on_report)
        await client.post(PATH, json=body())
        await client.post(PATH, content=b"{")
        await world.clock.advance(2.0)
        first, second = await reports.get(), await reports.get()
        assert second.sequence == first.sequence + 1
        assert (first.requests, first.refused, first.tokens, first.streams) == (2, 1, 2, 0)
        request = await world.replicas[0].asked.get()
        assert request.gateway_id == first.gateway_id


async def test_probes_and_metrics() -> None:
    async with gateway_world(says("a", "b")) as world, httpx.AsyncClient(base_url=world.url) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).text == "ready\n"
        await client.post(PATH, json=body(), headers={"authorization": f"Bearer {KEY}"})
        await client.post(PATH, json=body())
        text = (await client.get("/metrics")).text
        for line in (
            'lorafleet_gateway_requests_total{outcome="stop"} 1.0',
            'lorafleet_gateway_requests_total{outcome="invalid_api_key"} 1.0',
            'lorafleet_gateway_ttft_seconds_count{tier="gpu"} 1.0',
            "lorafleet_gateway_tokens_total 2.0",
            "lorafleet_gateway_streams 0.0",
        ):
            assert line in text
