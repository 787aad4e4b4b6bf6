"""A registry whose only replica answers evaluation sets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.evaluations import Tongues
from tests.support.registry_place import Place
from tests.support.registry_world import FakeReplica, World


@pytest.fixture
async def replica(place: Place) -> FakeReplica:
    [replica] = await place.replicas("replica-a")
    replica.says = Tongues()
    return replica


@pytest.fixture
async def here(place: Place, replica: FakeReplica) -> AsyncIterator[World]:
    async with place.registry() as here:
        await here.prepare()
        yield here
