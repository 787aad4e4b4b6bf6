"""After a start, a restart or a new member the busiest adapters are loaded first, the tail after them."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.virtual_time import run_virtually
from services.placement.app import PlacementPolicy
from services.placement.core.heat import HeatPolicy
from services.placement.core.tick import TickPolicy
from shared.hashing import top
from shared.messages.desired import AdapterRecord
from tests.simulation.prewarm_world import Fleet
from tests.support.tiny_model import tiny_model_once

ADAPTERS = 1_000
TOP = 64
"""Those that get at least 40 / 64 requests a second, which is where a class begins."""
POLICY = PlacementPolicy(tick=TickPolicy(owners=1, heat=HeatPolicy(floor_per_s=40.0 / 2**10)))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


def owned(fleet: Fleet, replica_ids: tuple[str, ...], owner: str) -> set[str]:
    """Which of the busiest a replica owns."""
    names = [each.adapter_id for each in fleet.records[:TOP]]
    owners = top(names, dict.fromkeys(replica_ids, 1.0), 1)
    return {name for name, (first,) in zip(names, owners, strict=True) if first == owner}


async def first_loads(
    folder: Path, model_folder: Path, policy: PlacementPolicy
) -> list[tuple[set[str], list[AdapterRecord]]]:
    """Of two replicas that start together and of a third that joins them: the busiest that each owns, and as many
    adapters as they are, in the order in which it fetched them."""
    found, fleet = [], Fleet(folder, model_folder, policy)
    async with fleet.running(["r1", "r2"], ADAPTERS):
        for replica_ids, looked_at in ((("r1", "r2"), ("r1", "r2")), (("r1", "r2", "r3"), ("r3",))):
            for name in looked_at:
                if name not in fleet.links:
                    await fleet.join(name)
                busiest = owned(fleet, replica_ids, name)
                found.append((busiest, await fleet.until_read(name, len(busiest))))
    return found


def test_the_busiest_are_fetched_before_the_tail_after_a_start_and_by_a_new_member(
    tmp_path: Path, model_folder: Path
) -> None:
    loads = run_virtually(first_loads(tmp_path, model_folder, POLICY))
    assert len(loads) == 3
    for busiest, fetched in loads:
        assert len(busiest) > 10
        assert {record.adapter_id for record in fetched} == busiest


def test_without_heat_they_are_not(tmp_path: Path, model_folder: Path) -> None:
    cold = PlacementPolicy(tick=TickPolicy(owners=1, heat=HeatPolicy(floor_per_s=1e9)))
    for busiest, fetched in run_virtually(first_loads(tmp_path, model_folder, cold)):
        assert len({record.adapter_id for record in fetched} & busiest) < len(busiest) / 2
