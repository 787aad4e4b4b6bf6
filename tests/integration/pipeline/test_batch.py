"""Many registrations: at once, again, over a registry that is away for a while, and with some that are wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from services.console.__main__ import main
from services.console.core.outcome import OK, REFUSED, UNREACHABLE, USAGE
from shared.pipeline.batch import IN, NOT_REACHED, REJECTED, AnnouncedWish, Batch, BatchPolicy, FolderWish, Result
from shared.pipeline.connect import connect
from shared.pipeline.folder import Identity
from shared.runtime.http_server import HttpServer
from tests.support.adapter_files import BASE
from tests.support.faulty_link import Answer, Cut, faulty_link
from tests.support.registry_served import QUICK, where
from tests.support.registry_world import ADMIN_KEY, World

MANY = 12


def wishes(here: World, count: int = MANY) -> list[AnnouncedWish]:
    return [AnnouncedWish(announced=here.announce(f"v{at}", seed=at)) for at in range(count)]


async def test_a_second_run_passes_over_what_the_first_has_brought_in(alone: World, alone_url: str) -> None:
    many, results = wishes(alone), list[Result]()
    async with faulty_link(alone_url) as link, connect(where(link.url), QUICK) as pipeline:
        run = Batch(pipeline, BatchPolicy(at_once=4), {})
        assert await run.run(many[: MANY // 2], results.append) == {IN: MANY // 2}
        link.requests.clear()
        again = Batch(pipeline, BatchPolicy(at_once=4), await pipeline.known("acme"))
        assert await again.run(many, results.append) == {IN: MANY}
    assert [request.method for request in link.requests] == ["GET", *["POST"] * (MANY - MANY // 2)]
    assert {result.adapter_id for result in results} == {wish.source for wish in many}


async def test_a_registry_that_is_away_for_a_while_costs_nobody(alone: World, alone_url: str) -> None:
    """Half of the answers are lost: whoever had one is there already when the announcement comes again."""
    async with faulty_link(alone_url) as link, connect(where(link.url), QUICK) as pipeline:
        link.plant("POST", *[Cut(0), Answer(503, "SlowDown"), None, Cut(0, reset=True)] * 4)
        counts = await Batch(pipeline, BatchPolicy(at_once=4), {}).run(wishes(alone), lambda result: None)
    assert counts == {IN: MANY}
    listed = (await alone.admin.get("/internal/adapters")).json()["adapters"]
    assert len(listed) == MANY


async def test_a_registry_that_restarts_in_the_middle_costs_nobody(alone: World) -> None:
    some_are_in, results = asyncio.Event(), list[Result]()

    def note(result: Result) -> None:
        results.append(result)
        if len(results) == MANY // 3:
            some_are_in.set()

    server = HttpServer(alone.door, ("127.0.0.1", 0), 0.0)
    await server.start()
    async with connect(where(f"http://127.0.0.1:{server.port}"), QUICK) as pipeline:
        run = asyncio.create_task(Batch(pipeline, BatchPolicy(at_once=2), {}).run(wishes(alone), note))
        await some_are_in.wait()
        await server.stop()
        assert len(results) < MANY
        server = HttpServer(alone.door, ("127.0.0.1", server.port), 0.0)
        await server.start()
        assert await run == {IN: MANY}
        await server.stop()


async def test_a_registry_that_stays_away_ends_the_run_and_the_rest_is_not_tried(alone: World) -> None:
    impatient = msgspec.structs.replace(QUICK, give_up_s=0.1)
    results = list[Result]()
    async with connect(where("http://127.0.0.1:9"), impatient) as pipeline:
        counts = await Batch(pipeline, BatchPolicy(at_once=2), {}).run(wishes(alone), results.append)
    assert counts == {NOT_REACHED: MANY}
    assert all("could not be asked for 0.1 s" in result.reason for result in results)


async def test_whoever_waits_is_told_what_became_active(here: World, admin_url: str) -> None:
    results, wrong = list[Result](), AnnouncedWish(announced=here.announce("wrong", rank=64, alpha=-1.0))
    async with connect(where(admin_url), QUICK) as pipeline:
        run = Batch(pipeline, BatchPolicy(at_once=4, outcome_s=20.0), {})
        assert await run.run([*wishes(here, 3), wrong], results.append) == {IN: 3, REJECTED: 1}
    told = {result.adapter_id: result for result in results}
    assert {told[f"v{at}"].status for at in range(3)} == {"active"}
    assert {"rank_too_high", "alpha_invalid"} <= {defect.code for defect in told["wrong"].defects}


async def test_a_folder_that_cannot_be_read_costs_only_itself(alone: World, alone_url: str, tmp_path: Path) -> None:
    alone.announce("v1")
    identity, inbox = Identity(tenant_id="acme", base_model_hash=BASE.base_model_hash), tmp_path / "inbox"
    both = [FolderWish(folder=inbox / name, identity=identity) for name in ("gone", "v1")]
    async with connect(where(alone_url), QUICK) as pipeline:
        counts = await Batch(pipeline, BatchPolicy(at_once=1), {}).run(both, lambda result: None)
    assert counts == {REJECTED: 1, IN: 1}


async def register_all(*words: str) -> int:
    return await asyncio.to_thread(main, ["adapters", "register-all", *words, "--tenant", "acme"])


async def test_the_command_brings_folders_in_and_says_what_is_wrong_with_the_others(
    alone: World, alone_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = {"URL": alone_url, "ADMIN_URL": alone_url, "API_KEY": "k", "ADMIN_KEY": ADMIN_KEY}
    for name, value in said.items():
        monkeypatch.setenv(f"LORAFLEET_{name}", value)
    for at in range(3):
        alone.announce(f"v{at}", seed=at)
    inbox, outcomes = tmp_path / "inbox", tmp_path / "outcomes.jsonl"
    words = (str(inbox), "--base", BASE.base_model_hash, "--outcomes", str(outcomes))
    assert await register_all(*words, "--json") == OK
    assert json.loads(capsys.readouterr().out) == {"in": 3}
    config = inbox / "v1" / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "r": 0, "lora_alpha": -1}))
    (inbox / "v1" / "adapter_model.safetensors").write_bytes(b"other bytes")
    assert await register_all(*words) == REFUSED
    said_last = capsys.readouterr().err
    assert "2 in, 1 rejected" in said_last
    assert f"{inbox / 'v1'}: rejected: " in said_last
    lines = [json.loads(line) for line in outcomes.read_text().splitlines()]
    [wrong] = [line for line in lines if line["result"] == "rejected"]
    assert len(wrong["defects"]) > 2
    assert await register_all("--from", str(tmp_path / "none"), "--base", "b") == USAGE
    assert await register_all() == USAGE
    monkeypatch.setenv("LORAFLEET_ADMIN_URL", "http://127.0.0.1:9")
    assert await register_all(*words, "--patience", "0.1") == UNREACHABLE
