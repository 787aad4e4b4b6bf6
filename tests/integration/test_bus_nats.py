"""What only a real server can do to the bus: refuse, restart, forget, flood."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus import nats_events, nats_link, nats_watch
from shared.bus.nats import connect
from shared.bus.nats_provision import provision
from shared.bus.port import BusUnavailable, DeadlineExceeded, Ids
from shared.contracts import catalog
from shared.contracts.permissions import PROVISIONER
from shared.contracts.streams import event_streams
from shared.messages.adapters import AdapterRegistered
from shared.messages.desired import TenantRecord
from shared.messages.generation import Cancel
from shared.messages.operations import AskState, HoldResult, LoadAdapter
from tests.support.bus_samples import gateway_report, registered, sample
from tests.support.bus_worlds import Heard, NatsWorld, until

REPORTS_OF_G1 = catalog.GATEWAY_REPORT.subject("g1")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Taken, so that nobody else gets it, but not listening."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def no_check_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a service whose catalog is not the server's."""
    for rule in ("require_reader", "require_writer"):
        monkeypatch.setattr(f"shared.bus.nats.{rule}", lambda service, channel: None)


def tenant(name: str) -> TenantRecord:
    return TenantRecord(tenant_id=name)


async def test_no_server_is_one_clear_sentence(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_link, "FIRST_CONNECT_S", 0.3)
    url = f"nats://127.0.0.1:{closed_port}"
    options = nats_link.BusOptions(url=url, user="gateway", password="secret", client_name="test")
    with pytest.raises(BusUnavailable, match=f"^no connection to NATS at {url} as gateway: .*refused") as failure:
        await connect(options)
    assert "secret" not in str(failure.value)


async def test_a_wrong_password_is_told_at_once_and_not_repeated(nats_world: NatsWorld) -> None:
    options = msgspec.structs.replace(nats_world.server.options("gateway"), password="wrong-one")
    with pytest.raises(BusUnavailable, match=r"as gateway: .*[aA]uthorization") as failure:
        await connect(options)
    assert "wrong-one" not in str(failure.value)


async def test_a_user_who_is_no_service_is_refused(nats_world: NatsWorld) -> None:
    with pytest.raises(ValueError, match="provision"):
        await connect(nats_world.server.options(PROVISIONER))


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
async def test_everything_goes_on_after_a_restart(nats_world: NatsWorld, kill: bool) -> None:
    registry, gateway, pipeline = [await nats_world.connect(name) for name in ("registry", "gateway", "pipeline")]
    changes, facts, pid = Heard(), Heard(), nats_world.server.pid
    await gateway.state(catalog.TENANT).watch(changes)
    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", facts)
    await nats_world.lose(kill=kill)
    await nats_world.find()
    assert nats_world.server.pid != pid
    await registry.state(catalog.TENANT).put(tenant("t1"), "t1")
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered())
    assert (await changes.reach(1))[0].value == tenant("t1")
    assert (await facts.reach(1))[0] == (registered(), ())


async def test_keys_that_vanished_while_the_server_was_away_are_told_as_gone(
    nats_world: NatsWorld, tmp_path: Path
) -> None:
    registry, gateway, heard = await nats_world.connect("registry"), await nats_world.connect("gateway"), Heard()
    for name in ("t1", "t2"):
        await registry.state(catalog.TENANT).put(tenant(name), name)
    await gateway.state(catalog.TENANT).watch(heard)
    await nats_world.lose()
    shutil.rmtree(tmp_path / "store")
    await nats_world.find()
    await provision(nats_world.server.options(PROVISIONER))
    changes = (await heard.reach(4))[2:]
    assert [(change.ids, change.value) for change in changes] == [(("t1",), None), (("t2",), None)]
    await registry.state(catalog.TENANT).put(tenant("t3"), "t3")
    assert (await heard.reach(5))[4].ids == ("t3",)


async def test_a_watch_that_missed_a_message_tells_everything_again(
    nats_world: NatsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, gateway, heard = await nats_world.connect("registry"), await nats_world.connect("gateway"), Heard()
    await registry.state(catalog.TENANT).put(tenant("t1"), "t1")
    await gateway.state(catalog.TENANT).watch(heard)

    def gap_once(reply: str) -> Any:
        monkeypatch.undo()
        found = nats_watch.position_of(reply)
        return msgspec.structs.replace(found, consumer_sequence=found.consumer_sequence + 1)

    monkeypatch.setattr(nats_watch, "position_of", gap_once)
    await registry.state(catalog.TENANT).put(tenant("t2"), "t2")
    assert [change.ids for change in await heard.reach(3)] == [("t1",), ("t1",), ("t2",)]


async def test_a_watch_whose_server_falls_silent_looks_again(
    nats_world: NatsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, gateway, heard = await nats_world.connect("registry"), await nats_world.connect("gateway"), Heard()
    await registry.state(catalog.TENANT).put(tenant("t1"), "t1")
    monkeypatch.setattr(nats_watch, "SILENCE_S", 0.05)
    await gateway.state(catalog.TENANT).watch(heard)
    assert [change.ids for change in await heard.reach(3)] == [("t1",)] * 3


async def test_a_question_under_way_when_the_server_dies_fails_at_once(nats_world: NatsWorld) -> None:
    registry, worker, asked = await nats_world.connect("registry"), await nats_world.connect("replica_worker"), Heard()

    async def answer_too_late(message: LoadAdapter, ids: Ids) -> HoldResult:
        await asked(ids)
        return await asyncio.Future()

    await worker.serve(catalog.LOAD, answer_too_late, "r1")
    asking = asyncio.create_task(registry.ask(catalog.LOAD, sample(LoadAdapter), "r1", timeout_s=3600))
    await asked.reach(1)
    await nats_world.lose()
    with pytest.raises(DeadlineExceeded, match="broke while"):
        await asking


@pytest.mark.usefixtures("no_check_of_our_own")
async def test_what_the_server_refuses_is_seen(nats_world: NatsWorld, caplog: pytest.LogCaptureFixture) -> None:
    console = await nats_world.connect("console")
    with pytest.raises(PermissionError, match=r"console subscribe to lf\.v1\.reply"):
        await console.subscribe(catalog.FRAME, Heard())
    with pytest.raises(PermissionError, match=r"console publish to lf\.v1\.rpc\.replica\.cancel\.r1"):
        await console.ask(catalog.CANCEL, sample(Cancel), "r1", timeout_s=0.5)
    await console.publish(catalog.GATEWAY_REPORT, gateway_report(), "g1")
    await until(lambda: f"NATS refused console: publish to {REPORTS_OF_G1}" in caplog.text)


async def test_messages_dropped_for_a_slow_handler_are_reported(
    nats_world: NatsWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nats_link, "PENDING_MESSAGES", 5)
    gateway, worker, go_on = (
        await nats_world.connect("gateway"),
        await nats_world.connect("replica_worker"),
        asyncio.Event(),
    )

    async def wait(message: Any, ids: Ids) -> None:
        await go_on.wait()

    await worker.subscribe(catalog.GATEWAY_REPORT, wait)
    for sequence in range(50):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(sequence), "g1")
    await until(lambda: "too slow for what comes in" in caplog.text)
    assert REPORTS_OF_G1 in caplog.text
    go_on.set()


class Ticks:
    """A fact that fails each time it comes: now, after 0.1 s, after another 0.5 s. Three ticks are three
    ACK_WAIT_S of 0.2 s: whatever should have come again by then has."""

    def __init__(self) -> None:
        self.heard = Heard()

    async def count(self, message: AdapterRegistered) -> None:
        if message.adapter_id == "tick":
            await self.heard("tick")
            raise RuntimeError("not yet")


@pytest.mark.parametrize("renewing", [True, False], ids=["renewed", "planted: not renewed"])
async def test_a_long_handler_keeps_its_message(
    nats_world: NatsWorld, monkeypatch: pytest.MonkeyPatch, renewing: bool
) -> None:
    monkeypatch.setattr(nats_events, "ACK_WAIT_S", 0.2)
    if not renewing:
        monkeypatch.setattr(nats_events.Consumption, "_renew", lambda self, reply: asyncio.sleep(0))
    pipeline, heard, ticks, finish = await nats_world.connect("pipeline"), Heard(), Ticks(), asyncio.Event()

    async def take(message: AdapterRegistered, ids: Ids) -> None:
        await ticks.count(message)
        await heard(message.adapter_id)
        await finish.wait()

    for name, reached in (("long", heard), ("tick", ticks.heard)):
        await (await nats_world.connect("registry")).consume(catalog.ADAPTER_REGISTERED, "registry", take)
        await pipeline.publish(catalog.ADAPTER_REGISTERED, registered(name))
        await reached.reach(1)
    await (ticks.heard.reach(3) if renewing else heard.reach(2))
    finish.set()
    assert heard.calls == (["long"] if renewing else ["long", "long"])


async def test_an_undecodable_fact_never_comes_again(
    nats_world: NatsWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nats_events, "ACK_WAIT_S", 0.2)
    pipeline, registry, ticks = await nats_world.connect("pipeline"), await nats_world.connect("registry"), Ticks()

    async def take(message: AdapterRegistered, ids: Ids) -> None:
        await ticks.count(message)

    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", take)
    await pipeline.publish(replace(catalog.ADAPTER_REGISTERED, message=AskState), AskState())
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("tick"))
    await ticks.heard.reach(3)
    assert caplog.text.count("not a message of channel adapter.registered") == 1


async def _provision_command(environment: dict[str, str]) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "infra.nats.provision",
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_provision_command_does_it_and_says_so(nats_world: NatsWorld) -> None:
    options = nats_world.server.options(PROVISIONER)
    environment = {
        "LORAFLEET_PROVISION_NATS_URL": options.url,
        "LORAFLEET_PROVISION_NATS_USER": options.user,
        "LORAFLEET_PROVISION_NATS_PASSWORD": options.password,
    }
    code, out, err = await _provision_command(environment)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"{event_streams()[0].name} kept"
    wrong = {**environment, "LORAFLEET_PROVISION_NATS_PASSWORD": "wrong"}
    code, out, err = await _provision_command(wrong)
    assert (code, out) == (2, "")
    assert err.startswith(f"no connection to NATS at {options.url} as provision: ")
    assert err.count("\n") == 1


# -- what the client does not do for us ----------------------------------------------------------------


async def test_a_cancellation_that_the_client_swallows_is_one_all_the_same(
    nats_world: NatsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It swallows those that meet an answer; a loop of ours that is told to end would then go on for ever."""
    asked, registry = asyncio.Event(), await nats_world.connect("registry")

    async def answering(*_: object, **__: object) -> Msg:
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return Msg(_client=None, data=msgspec.json.encode({"seq": 1}))

    monkeypatch.setattr(Client, "request", answering)
    storing = asyncio.create_task(registry.state(catalog.TENANT).put(tenant("a"), "a"))
    await asked.wait()
    storing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await storing


@pytest.mark.parametrize("error", [RuntimeError("the handler is closed"), ConnectionResetError("reset")])
async def test_a_watch_outlives_whatever_the_client_raises(
    nats_world: NatsWorld, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    gateway, registry, heard = await nats_world.connect("gateway"), await nats_world.connect("registry"), Heard()
    tenants = registry.state(catalog.TENANT)
    await gateway.state(catalog.TENANT).watch(heard)
    subscribe, raised = Client.subscribe, asyncio.Event()

    async def failing_once(self: Client, *given: Any, **named: Any) -> Any:
        if not raised.is_set():
            raised.set()
            raise error
        return await subscribe(self, *given, **named)

    monkeypatch.setattr(Client, "subscribe", failing_once)
    await nats_world.lose()
    await nats_world.find()
    await raised.wait()
    await tenants.put(tenant("a"), "a")
    await heard.reach(1)
