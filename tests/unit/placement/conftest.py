from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.contracts.catalog import BASE_MODEL
from tests.simulation.speakers import BASE_HASH, base_model
from tests.unit.placement.stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    await stage.registry.state(BASE_MODEL).put(base_model(), BASE_HASH)
    yield stage
    for placement in stage.placements:
        await placement.stop()
