"""One embedded fleet for all end-to-end tests: real processes, the real bus, the real engine on a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI
from tokenizers import Tokenizer

from infra.adapters.canary import CanaryBuilder
from infra.adapters.markers import markers
from infra.local.temporary import TemporaryFleet, temporary_fleet
from tests.clients.place import Place
from tests.support.asking import wait_answers
from tests.support.pipeline import Pipeline
from tests.support.tiny_model import build_tiny_model

CANARIES = 12


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny-llama")


@pytest.fixture(scope="session")
def canary_folders(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Marker to PEFT folder of adapters that answer every chat with their marker."""
    root = tmp_path_factory.mktemp("canaries")
    builder = CanaryBuilder(model_folder, root / "cache")
    words = markers(Tokenizer.from_file(str(model_folder / "tokenizer.json")), CANARIES + 4, seed=1)
    return {word: builder.build(word, root / f"canary-{at}") for at, word in enumerate(words)}


@pytest.fixture(scope="session")
def fleet(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryFleet]:
    """Two replicas with four slots each. Some tests have more streams than there are rows, and all are to wait."""
    home = tmp_path_factory.mktemp("fleet")
    settings = {"model": str(model_folder), "demo": "false", "slots": "4", "gateway_shed_late": "false"}
    with temporary_fleet(home, **settings) as running:
        yield running


@pytest.fixture(scope="session")
def pipeline(fleet: TemporaryFleet) -> Iterator[Pipeline]:
    headers = {"Authorization": f"Bearer {fleet.connection.admin_key}"}
    with httpx.Client(base_url=fleet.connection.admin_url, headers=headers, timeout=60.0, trust_env=False) as admin:
        yield Pipeline(fleet, admin)


@pytest.fixture(scope="session")
def acme(fleet: TemporaryFleet, pipeline: Pipeline) -> Iterator[OpenAI]:
    """The official SDK with a key of the tenant acme, which may call the base model too."""
    url = fleet.connection.url
    with OpenAI(base_url=f"{url}/v1", api_key=pipeline.key("acme"), max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def canaries(pipeline: Pipeline, acme: OpenAI, canary_folders: dict[str, Path]) -> dict[str, str]:
    """Alias to marker of twelve deployed canaries."""
    chosen = list(canary_folders.items())[:CANARIES]
    announced = {
        f"acme/canary-{at}:prod": (marker, pipeline.message(folder, f"canary-{at}", f"acme/canary-{at}:prod"))
        for at, (marker, folder) in enumerate(chosen)
    }
    for _, message in announced.values():
        pipeline.announce(message)
    for _, message in announced.values():
        pipeline.wait_brought(message)
    return {alias: marker for alias, (marker, _) in announced.items()}


@pytest.fixture(scope="session")
def place(
    fleet: TemporaryFleet, acme: OpenAI, canaries: dict[str, str], pipeline: Pipeline, model_folder: Path
) -> Place:
    """The fleet, for clients in processes of their own."""
    alias, marker = next(iter(canaries.items()))
    wait_answers(acme, alias, marker)
    return Place(
        url=fleet.connection.url,
        key=acme.api_key,
        alias=alias,
        marker=marker,
        base=str(pipeline.base["name"]),
        tokenizer=Tokenizer.from_file(str(model_folder / "tokenizer.json")),
    )
