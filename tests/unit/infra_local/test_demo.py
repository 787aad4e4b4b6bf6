"""The demo's first steps against a registry and a gateway that answer by script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from infra.local.demo import DEMO_FOLDER, DemoFleet, announcement, demo_folders
from infra.local.preflight import CannotStart
from shared.messages.desired import BaseModelRecord

Answer = Callable[[httpx.Request], httpx.Response]


def demo(answer: Answer, said: list[str] | None = None) -> DemoFleet:
    admin, door = (httpx.AsyncClient(base_url="http://fleet", transport=httpx.MockTransport(answer)) for _ in range(2))
    return DemoFleet(admin, door, (said if said is not None else []).append)


async def test_an_adapter_is_followed_until_it_is_active() -> None:
    said: list[str] = []
    states = iter((404, "registered", "evaluating", "evaluating", "active"))

    def answer(request: httpx.Request) -> httpx.Response:
        state = next(states)
        return httpx.Response(404) if state == 404 else httpx.Response(200, json={"status": state, "reason": ""})

    assert await demo(answer, said).wait_active("a1", 20.0)
    assert said == [f"adapter a1: {state}" for state in ("registered", "evaluating", "active")]


async def test_one_that_an_operator_has_retired_does_not_keep_the_fleet_from_starting() -> None:
    retired = demo(lambda request: httpx.Response(200, json={"status": "retired", "reason": ""}))
    assert not await retired.wait_active("a1", 20.0)


async def test_a_merged_replica_whose_adapter_is_unknown_is_told() -> None:
    said: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        known = request.url.path.endswith("/known")
        return httpx.Response(200, json={"status": "active"}) if known else httpx.Response(404)

    await demo(answer, said).tell_awaited(("known", "misspelt", "a" * 64))
    assert said == ["merged-1 waits for an adapter misspelt, which is not registered yet"]


async def test_one_that_failed_says_why_and_how_to_start_without_it() -> None:
    failed = demo(lambda request: httpx.Response(200, json={"status": "failed", "reason": "no effect"}))
    with pytest.raises(CannotStart, match=r"a1 is failed \(no effect\): set LORAFLEET_DEMO=false"):
        await failed.wait_active("a1", 20.0)


async def test_a_gateway_that_refuses_is_quoted_at_the_deadline() -> None:
    refusing = demo(lambda request: httpx.Response(401, text="Incorrect API key."))
    with pytest.raises(CannotStart, match=r"acme/a does not answer \(last: 401 Incorrect API key\.\) after 0 s"):
        await refusing.wait_answer("acme/a", "k", 0.05)


async def test_a_gateway_that_is_not_there_yet_is_asked_again() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["Authorization"])
        if len(asked) == 1:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"choices": [{"message": {"content": "hello"}}]})

    assert await demo(answer).wait_answer("acme/a", "k", 20.0) == "hello"
    assert asked == ["Bearer k"] * 2


async def test_a_registry_that_breaks_off_is_one_sentence() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset")

    with pytest.raises(CannotStart, match=r"The registry does not answer /internal/adapters/a1 \(ReadError reset\)"):
        await demo(answer).status("a1")


async def test_another_rank_limit_than_the_fleets_own_says_what_to_start_with() -> None:
    conflict = {"error": {"message": "Rank classes [16] are in use; they can only be added to."}}
    other = demo(lambda request: httpx.Response(409, json=conflict))
    base = BaseModelRecord(
        base_model_hash="b" * 64, name="tiny", layers=2, modules={}, rank_classes=(8,), max_context_tokens=2048
    )  # fmt: skip
    with pytest.raises(CannotStart, match=r"rank 8, .* LORAFLEET_HOME .*Rank classes \[16\]"):
        await other.prepare([base], "key")


def test_the_demo_is_for_the_base_model_that_it_was_trained_on() -> None:
    trained_on = (DEMO_FOLDER / "base_model_hash").read_text().strip()
    assert [folder.name for folder in demo_folders(trained_on)] == ["formal-support", "json", "terse"]
    assert demo_folders("0" * 64) == []


def test_an_announcement_says_what_the_folder_says() -> None:
    folder: Path = DEMO_FOLDER / "terse"
    said = announcement(folder, "b" * 64)
    assert (said.alias, said.rank, said.alpha) == ("acme/terse:prod", 8, 16.0)
    assert said.weights_uri == (folder / "adapter_model.safetensors").as_uri()
    assert said.adapter_id == f"acme-terse-{said.checksum[:8]}"
