from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.replica import BASE_HASH, Rig, rig
from tests.support.tiny_model import tiny_model_once
from tests.support.unruly_engine import UnrulyEngine, unruly


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


@pytest.fixture
def engine() -> UnrulyEngine:
    return unruly(BASE_HASH)


@pytest.fixture
async def replica(tmp_path: Path, model_folder: Path, engine: UnrulyEngine) -> AsyncIterator[Rig]:
    """A replica with 4 slots over the timed engine, sound at the end of every test."""
    async with rig(tmp_path, model_folder, engine=engine) as built:
        yield built
        engine.go()
        await built.settled()
        built.assert_sound()
