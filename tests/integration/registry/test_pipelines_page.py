"""The programs in docs/pipelines.md, as they stand there: ours, and an ordinary client that has nothing of ours."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from shared.contracts import catalog
from shared.messages.adapters import AdapterRegistered
from tests.support.bus_worlds import NatsWorld, world_of
from tests.support.registry_served import served
from tests.support.registry_world import ADMIN_KEY, FakeReplica, World

PAGE = Path(__file__).parents[3] / "docs" / "pipelines.md"
PATIENCE_S = 60.0


@pytest.fixture
async def buses(tmp_path: Path) -> AsyncIterator[NatsWorld]:
    folder = tmp_path / "nats"
    folder.mkdir()
    async with world_of("nats", folder) as made:
        assert isinstance(made, NatsWorld)
        yield made


def written(place: Path, library: str) -> Path:
    """The one program of the page that imports this library."""
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    [code] = [code for code in programs if library in code]
    place.write_text(code)
    return place


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return written(tmp_path / "announce.py", "import nats")


async def run(program: Path, buses: NatsWorld, announcement: object) -> tuple[str, dict[str, Any]]:
    """The event that the program printed: its subject and its content."""
    said = program.with_name("adapter.json")
    said.write_bytes(msgspec.json.encode(announcement))
    printed = await output([program, said], {"LORAFLEET_NATS_URL": nats_url(buses)})
    subject, _, content = printed.partition(" ")
    return subject, msgspec.json.decode(content)


def nats_url(buses: NatsWorld) -> str:
    login = buses.server.options("pipeline")
    return f"nats://{login.user}:{quote(login.password, safe='')}@{login.url.partition('://')[2]}"


async def output(words: Sequence[str | Path], env: dict[str, str]) -> str:
    """What a program printed; it must end well and complain about nothing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", *words,
        cwd=Path(words[0]).parent, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S):
            printed, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, complaints) == (0, b"")
    return printed.decode().strip()


async def test_it_prints_that_a_good_adapter_is_active(here: World, program: Path, buses: NatsWorld) -> None:
    announced = here.announce("v1", alias="acme/support:prod")
    subject, told = await run(program, buses, announced)
    assert subject == catalog.ADAPTER_ACTIVATED.subject()
    assert (told["adapter_id"], told["digest"]) == ("v1", announced.checksum)
    assert await here.status("v1") == "active"


async def test_it_prints_every_defect_and_then_that_the_corrected_one_is_active(
    here: World, program: Path, buses: NatsWorld
) -> None:
    right = here.announce("v1")
    subject, told = await run(program, buses, msgspec.structs.replace(right, rank=64, alpha=-1.0))
    assert (subject, told["adapter_id"]) == (catalog.ADAPTER_REJECTED.subject(), "v1")
    assert {"rank_too_high", "alpha_invalid"} <= {defect["code"] for defect in told["defects"]}
    subject, _ = await run(program, buses, right)
    assert subject == catalog.ADAPTER_ACTIVATED.subject()


async def test_it_prints_why_an_adapter_failed(
    here: World, program: Path, buses: NatsWorld, replicas: tuple[FakeReplica, FakeReplica]
) -> None:
    for replica in replicas:
        replica.passed, replica.reason = False, "no effect"
    subject, told = await run(program, buses, here.announce("v1"))
    assert subject == catalog.ADAPTER_FAILED.subject()
    assert "no effect" in told["reason"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"rank": "four"}, "rank"), ({"alfa": 8.0}, "alfa"), ({"rank_pattern": {"q_proj": []}}, "rank_pattern[...]")],
)
async def test_it_prints_which_field_is_not_of_the_right_shape(
    here: World, program: Path, buses: NatsWorld, changes: dict[str, Any], field: str
) -> None:
    announced: dict[str, Any] = msgspec.to_builtins(here.announce("v1"))
    subject, told = await run(program, buses, {**announced, **changes})
    assert (subject, told["adapter_id"], told["tenant_id"]) == (catalog.ADAPTER_REJECTED.subject(), "v1", "acme")
    [defect] = told["defects"]
    assert (defect["code"], defect["field"]) == ("invalid_announcement", field)
    assert field in defect["message"]
    assert await here.status("v1") is None


async def test_the_client_on_the_page_tells_the_outcome(here: World, buses: NatsWorld, tmp_path: Path) -> None:
    program = written(tmp_path / "register.py", "shared.pipeline")
    announced = here.announce("good")
    here.announce("wrong", rank=64, alpha=-1.0)
    async with served(here) as admin_url:
        env = {
            "LORAFLEET_ADMIN_URL": admin_url,
            "LORAFLEET_ADMIN_KEY": ADMIN_KEY,
            "LORAFLEET_NATS_URL": nats_url(buses),
        }

        async def told(name: str) -> str:
            return await output([program, tmp_path / "inbox" / name, announced.base_model_hash], env)

        assert await told("good") == f"acme-good-{announced.checksum[:8]} is active"
        assert {"rank_too_high", "alpha_invalid"} <= {
            line.partition(":")[0] for line in (await told("wrong")).splitlines()
        }


async def test_the_page_names_every_field_of_an_announcement() -> None:
    table = "".join(line for line in PAGE.read_text().splitlines() if line.startswith("|"))
    assert [name for name in AdapterRegistered.__struct_fields__ if f"`{name}`" not in table] == []
