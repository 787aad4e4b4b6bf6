"""One pool from one moment to the next: pure, so that live, test and twin decide alike."""

from __future__ import annotations

import msgspec

from services.autoscaler.core.floor import floor_of, learnt
from services.autoscaler.core.lives import gone_after, of_this_life
from services.autoscaler.core.load import PoolLoad
from services.autoscaler.core.memory import PoolDecision, PoolMemory
from services.autoscaler.core.moves import Scene, moves_of
from services.autoscaler.core.need import Needs, Situation, needs_of
from services.autoscaler.core.pace import capacity_of, paced
from services.autoscaler.core.policy import ScalePolicy
from services.autoscaler.core.roster import Roster, roster_of
from services.autoscaler.core.wish import Look, wish_of


def decide(memory: PoolMemory, load: PoolLoad, now_s: float, policy: ScalePolicy) -> PoolDecision:
    """What the pool should have now, and who is to come and to go. To be called about once a second."""
    gone = gone_after(memory.gone, load)
    memory, load = msgspec.structs.replace(memory, gone=gone), of_this_life(load, gone)
    roster = roster_of(memory, load, now_s, policy)
    memory, needs = _looked(memory, load, roster, now_s, policy)
    wish = wish_of(memory, Look(load=load, roster=roster, needs=needs, now_s=now_s, policy=policy))
    scene = Scene(load=load, roster=roster, desired=wish.desired, now_s=now_s, policy=policy)
    moves = moves_of(wish.memory, scene)
    return PoolDecision(
        pool_id=load.pool_id,
        desired=wish.desired,
        reason=f"{wish.reason}; {moves.note}" if moves.note else wish.reason,
        memory=moves.memory,
        exist=moves.exist,
        start=moves.start,
        drain=moves.drain,
        undrain=moves.undrain,
        remove=moves.remove,
        serving=len(roster.serving),
        pending=roster.pending,
        queue_s=needs.queue_s,
        capacity_tokens_per_s=capacity_of(roster, moves.memory.pace.rate),
    )


def _looked(
    memory: PoolMemory, load: PoolLoad, roster: Roster, now_s: float, policy: ScalePolicy
) -> tuple[PoolMemory, Needs]:
    """What is remembered after this look, and what the load needs."""
    pace = paced(memory.pace, roster, load.expected_rate, now_s, policy.need)
    floor = floor_of(memory.shape, load.day_s, policy.floor)
    needs = needs_of(Situation(load=load, roster=roster, pace=pace, policy=policy.need), floor)
    shape = learnt(memory.shape, load.day_s, needs.measured, policy.floor)
    return msgspec.structs.replace(memory, pace=pace, shape=shape), needs
