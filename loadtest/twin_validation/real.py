"""A held-out workload on a staged fleet."""

from __future__ import annotations

import asyncio

from loadtest.calibration.asking import Asker
from loadtest.calibration.measuring import ask_all
from loadtest.calibration.seen import Seen
from loadtest.calibration.stage import Stage, settled
from loadtest.calibration.traffic import Tokenizing, asks
from loadtest.twin_validation.workloads import KILLED, HeldOut


async def run(stage: Stage, workload: HeldOut, tokenizing: Tokenizing, name: str) -> list[Seen]:
    """Raises TimeoutError if a replica that was killed does not come back. `name` is this run's alone."""
    asker = Asker(stage.fleet.connection.url)
    killing = asyncio.create_task(_kill(stage, workload.kill_at_s))
    try:
        return await ask_all(stage, asker, asks(workload.shape, stage.customers, tokenizing, name))
    finally:
        asker.close()
        await killing
        await settled(stage)


async def _kill(stage: Stage, at_s: float | None) -> None:
    if at_s is not None:
        await asyncio.sleep(at_s)
        stage.fleet.kill(KILLED)
