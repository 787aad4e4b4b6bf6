"""Compose's actuator against a program that scales as Compose does."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from textwrap import dedent

import pytest

from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.io.actuator import Actuator, ActuatorFailed
from services.autoscaler.io.compose import Compose

POOL, OTHER = PoolSpec(pool_id="base-r16"), PoolSpec(pool_id="base-r64")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that scales as Compose does: highest numbers go first, and `ps` prints a JSON object a line."""
    path = tmp_path / "docker-compose"
    path.write_text(
        dedent("""\
        #!/usr/bin/env python3
        import json, pathlib, sys
        state = pathlib.Path(__file__).with_name("containers")
        running = int(state.read_text())
        with pathlib.Path(__file__).with_name("said").open("a") as said:
            print(*sys.argv[1:], file=said)
        if "up" in sys.argv:
            wanted = next(word for word in sys.argv if word.startswith("replica="))
            state.write_text(wanted.partition("=")[2])
        elif "ps" in sys.argv:
            if running > 90:
                sys.exit("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
            for at in reversed(range(running)):
                name = f"fleet-replica-{at + 1}"
                print(json.dumps({"ID": f"{at:012x}", "Name": name, "Service": "replica", "State": "running"}))
        """)
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "containers").write_text("2")
    return path


def composing(program: Path) -> Actuator:
    return Compose([str(program), "-p", "fleet"], {"base-r16": "replica"})


async def test_replicas_are_the_containers_of_the_service(program: Path) -> None:
    compose = composing(program)
    existing = await compose.existing(POOL)
    assert existing == {"000000000000", "000000000001"}
    assert compose.removal_order(POOL, existing) == ("000000000001", "000000000000")
    assert await compose.existing(OTHER) is None


async def test_the_service_is_scaled_once_and_nothing_else_is_touched(program: Path) -> None:
    compose = composing(program)
    for _ in range(2):
        await compose.apply(ScaleOrder(pool=POOL, desired=3))
    await compose.apply(ScaleOrder(pool=POOL, desired=1, remove=("000000000002", "000000000000")))
    assert await compose.existing(POOL) == {"000000000000", "000000000001"}
    said = program.with_name("said").read_text()
    assert said.count(" up ") == 2
    assert "-p fleet up --detach --no-deps --no-recreate --no-build --scale replica=3 replica" in said


async def test_what_compose_complains_of_is_the_failure(program: Path) -> None:
    program.with_name("containers").write_text("99")
    with pytest.raises(ActuatorFailed, match="Compose could not ps: Cannot connect to the Docker daemon"):
        await composing(program).existing(POOL)
    with pytest.raises(ActuatorFailed, match=f"{os.sep}nowhere cannot be run: No such file"):
        await Compose([str(program.with_name("nowhere"))], {"base-r16": "replica"}).existing(POOL)
