"""Two vLLM replicas behind the whole fleet: the gateway, the registry, and NATS between them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from openai import OpenAI
from tokenizers import Tokenizer

from infra.adapters.canary import CanaryBuilder
from infra.adapters.markers import markers
from infra.local.temporary import TemporaryFleet, temporary_fleet
from tests.support.asking import ask, stream, wait_answers
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually

CANARIES, SLOTS = 8, 4
NOTICED_S = 5.0
"""Two seconds for the engine to see that its core died, one for the replica's next report, and the way there."""


@pytest.fixture(scope="module")
def canary_folders(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Marker to PEFT folder of adapters that answer every chat with their marker."""
    root = tmp_path_factory.mktemp("canaries")
    builder = CanaryBuilder(tiny_folder, root / "cache")
    words = markers(Tokenizer.from_file(str(tiny_folder / "tokenizer.json")), CANARIES, seed=1)
    return {word: builder.build(word, root / f"canary-{at}") for at, word in enumerate(words)}


@pytest.fixture(scope="module")
def fleet(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryFleet]:
    """Every process runs from the venv of this test, which has vLLM."""
    home = tmp_path_factory.mktemp("fleet")
    settings = {"engine": "vllm", "slots": str(SLOTS), "worker_kv_budget_bytes": str(64 << 20)}
    with temporary_fleet(home, model=str(tiny_folder), demo="false", **settings) as running:
        yield running


@pytest.fixture(scope="module")
def pipeline(fleet: TemporaryFleet) -> Iterator[Pipeline]:
    headers = {"Authorization": f"Bearer {fleet.connection.admin_key}"}
    with httpx.Client(base_url=fleet.connection.admin_url, headers=headers, timeout=60.0, trust_env=False) as admin:
        yield Pipeline(fleet, admin)


@pytest.fixture(scope="module")
def acme(fleet: TemporaryFleet, pipeline: Pipeline) -> Iterator[OpenAI]:
    url = fleet.connection.url
    with OpenAI(base_url=f"{url}/v1", api_key=pipeline.key("acme"), max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def canaries(pipeline: Pipeline, acme: OpenAI, canary_folders: dict[str, Path]) -> dict[str, str]:
    """Alias to marker; every alias answers already."""
    told: dict[str, str] = {}
    for at, (marker, folder) in enumerate(canary_folders.items()):
        alias = f"acme/canary-{at}:prod"
        pipeline.bring(folder, f"canary-{at}", alias)
        told[alias] = marker
    for alias, marker in told.items():
        wait_answers(acme, alias, marker)
    return told


def core_of(fleet: TemporaryFleet, replica_id: str) -> psutil.Process:
    children = psutil.Process(fleet.pid(replica_id)).children()
    return next(child for child in children if child.children())


def unready(pipeline: Pipeline, replica_id: str) -> bool:
    return not (pipeline.replica(replica_id) or {}).get("ready")


def test_c21_eight_canaries_and_the_base_through_four_slots_answer_as_themselves(
    acme: OpenAI, pipeline: Pipeline, canaries: dict[str, str]
) -> None:
    base_name = pipeline.base["name"]
    base_alone = ask(acme, base_name)
    asked = [*canaries, *canaries, *canaries, base_name, base_name, base_name]
    random.Random(21).shuffle(asked)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda model: (model, ask(acme, model)), asked))
    for model, text in answers:
        assert text == canaries.get(model, base_alone)
    assert not any(marker in base_alone for marker in canaries.values())


def test_residency_is_what_stands_in_slots(pipeline: Pipeline, acme: OpenAI, canaries: dict[str, str]) -> None:
    for alias, marker in canaries.items():
        assert "".join(stream(acme, alias)) == marker
    replicas = [pipeline.replica(f"replica-{at}") or {} for at in range(2)]
    resident = [[one for one in replica["adapters"] if one["tier"] == "gpu"] for replica in replicas]
    assert all(0 < len(held) <= SLOTS for held in resident)


def test_requests_go_on_at_the_other_owner_when_an_engine_dies(
    fleet: TemporaryFleet, pipeline: Pipeline, acme: OpenAI, canaries: dict[str, str]
) -> None:
    replica = fleet.pid("replica-0")
    core_of(fleet, "replica-0").kill()
    eventually(lambda: unready(pipeline, "replica-0"), "replica-0 to be not ready", deadline_s=NOTICED_S)
    for alias, marker in canaries.items():
        assert ask(acme, alias) == marker
    eventually(lambda: fleet.pid("replica-0") != replica, "the supervisor to start replica-0 again")
    eventually(lambda: not unready(pipeline, "replica-0"), "replica-0 to serve again", deadline_s=180.0)
    for alias, marker in canaries.items():
        wait_answers(acme, alias, marker)


def test_a_killed_replica_takes_its_engine_along(fleet: TemporaryFleet) -> None:
    """An orphan would keep its memory, and on a GPU its replica could not be started again."""
    core = core_of(fleet, "replica-1")
    family = [core, *core.children(recursive=True)]
    fleet.kill("replica-1")
    eventually(lambda: not any(_runs(each) for each in family), "the engine to end with its replica")


def _runs(one: psutil.Process) -> bool:
    return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
