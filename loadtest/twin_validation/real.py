"""A held-out workload on a staged fleet."""

from __future__ import annotations

import asyncio

import msgspec

from loadtest.calibration.asking import Asker
from loadtest.calibration.measuring import ask_all
from loadtest.calibration.seen import Seen
from loadtest.calibration.stage import Stage, held_by, settled
from loadtest.calibration.traffic import Tokenizing, asks, each_once
from loadtest.twin_validation.workloads import KILLED, HeldOut


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """`held`: what each replica held as the run began, by adapter id the highest tier."""

    seen: list[Seen]
    held: dict[str, dict[str, str]]


async def run(stage: Stage, workload: HeldOut, tokenizing: Tokenizing, name: str) -> Played:
    """Everybody is asked once before it begins, since a replica that has just started is slow at first. Raises
    TimeoutError if a replica that was killed does not come back. `name` is this run's alone."""
    asker = Asker(stage.fleet.connection.url)
    await asker.run(each_once(stage.customers, f"{name}-first", apart_s=0.05))
    held = {replica_id: await held_by(stage, replica_id) for replica_id in stage.shape.replica_ids}
    killing = asyncio.create_task(_kill(stage, workload.kill_at_s))
    try:
        seen = await ask_all(stage, asker, asks(workload.shape, stage.customers, tokenizing, name))
    finally:
        asker.close()
        await killing
        await settled(stage)
    return Played(seen=seen, held=held)


async def _kill(stage: Stage, at_s: float | None) -> None:
    if at_s is not None:
        await asyncio.sleep(at_s)
        stage.fleet.kill(KILLED)
