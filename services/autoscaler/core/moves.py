"""From a wish to people and places: who is started, drained, taken back, removed.

A replica that drains is taken back before a new one is started: it is warm. The one whose loss moves least goes
first: one that is not ready yet, then the lowest weight (the fewest adapters), then the fewest tokens in flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from services.autoscaler.core.load import PoolLoad, ReplicaLoad
from services.autoscaler.core.memory import PoolMemory
from services.autoscaler.core.policy import ScalePolicy
from services.autoscaler.core.roster import Roster, silent_for_s

_BELIEVED_S = 120.0
"""How long a replica that was told to go is believed to be going. If it is still there then, it is looked at anew."""

_DOUBLINGS = 60
"""More than any pause is long; fewer than a float can hold."""


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    memory: PoolMemory
    exist: int
    start: int = 0
    drain: tuple[str, ...] = ()
    undrain: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    note: str = ""
    """What keeps the wish from coming true, if anything does."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    load: PoolLoad
    roster: Roster
    desired: int
    now_s: float
    policy: ScalePolicy


def moves_of(memory: PoolMemory, scene: Scene) -> Moves:
    """Who is to come and to go. Where the actuator cannot say what exists, nobody is known to carry out a removal,
    so nobody drains either: whoever follows the wish has to drain what it stops."""
    existing, roster = scene.load.existing, scene.roster
    memory = _tried(memory, scene)
    if existing is None:
        return _advice(memory, scene)
    back, victims = _taken_back(memory, scene), _victims(scene, existing)
    drains = {name: since_s for name, since_s in memory.drains.items() if _drains_still(name, memory, scene, back)}
    drains |= {name: scene.now_s for name in victims if name not in roster.coming}
    cancelled = tuple(name for name in victims if name in roster.coming)
    removing = _removing(memory, scene, drains, cancelled)
    start = _start(memory, scene, len(back))
    return Moves(
        memory=msgspec.structs.replace(memory, drains=drains, removing=removing),
        exist=len(existing - removing.keys()) + start,
        start=start,
        drain=tuple(sorted(drains)),
        undrain=back,
        remove=tuple(sorted(removing)),
        note=_note(memory, scene),
    )


def _advice(memory: PoolMemory, scene: Scene) -> Moves:
    roster = scene.roster
    return Moves(
        memory=msgspec.structs.replace(memory, drains={}, removing={}),
        exist=scene.desired + len(roster.aside) + len(roster.leaving),
        start=max(0, scene.desired - roster.places),
        undrain=tuple(sorted(memory.drains)),
        note=_note(memory, scene),
    )


def _drains_still(name: str, memory: PoolMemory, scene: Scene, back: tuple[str, ...]) -> bool:
    """An order to drain stands until its replica is taken back or gone. It goes with the replica: the next one may
    have the same name."""
    goes = name in memory.removing and name in (scene.load.existing or ())
    return goes or (name in scene.roster.leaving and name not in back)


def _taken_back(memory: PoolMemory, scene: Scene) -> tuple[str, ...]:
    """Of those that drain, the ones whose loss would move most; where there is an order, those that go last."""
    missing = max(0, scene.desired - scene.roster.places)
    heard = [replica for replica in scene.roster.heard if replica.replica_id in scene.roster.leaving]
    turn = {name: index for index, name in enumerate(scene.load.removal_order or ())}
    dearest = sorted(heard, key=lambda one: (turn.get(one.replica_id, 0), _loss(one)), reverse=True)
    return tuple(replica.replica_id for replica in dearest[:missing])


def _loss(replica: ReplicaLoad) -> tuple[float, int, str]:
    """What its loss moves: the smallest first."""
    return (replica.weight, replica.tokens_in_flight, replica.replica_id)


def _victims(scene: Scene, existing: frozenset[str]) -> tuple[str, ...]:
    """Those who are to go, of those that the actuator can remove."""
    roster = scene.roster
    surplus = max(0, roster.places - scene.desired)
    serving = [replica for replica in roster.serving if replica.replica_id in existing]
    if scene.load.removal_order is not None:
        able = {replica.replica_id for replica in serving} | {*roster.coming, *roster.warming, *roster.silent}
        # Behind one that drains by somebody else's order, everybody would drain in vain.
        reach = _leading(scene.load.removal_order, existing - {*roster.aside})
        return tuple(name for name in reach if name in able)[:surplus]
    cheapest = tuple(replica.replica_id for replica in sorted(serving, key=_loss))
    return (*reversed(roster.coming), *reversed(roster.warming), *cheapest)[:surplus]


def _removing(
    memory: PoolMemory, scene: Scene, drains: Mapping[str, float], cancelled: tuple[str, ...]
) -> dict[str, float]:
    """Whoever may go now: drained and empty, past the drain deadline, cancelled before it was ready, never ready, or
    lost; in the actuator's order, if it has one."""
    existing = scene.load.existing or frozenset()
    able = {name for name, since_s in drains.items() if _drained(name, since_s, scene)}
    able |= {*cancelled, *scene.roster.late, *_lost_for_good(scene)}
    able |= {name for name, since_s in memory.removing.items() if scene.now_s - since_s < _BELIEVED_S}
    order = scene.load.removal_order
    if order is not None:
        able = {*_leading(order, able)}
    return {name: memory.removing.get(name, scene.now_s) for name in sorted(able & existing)}


def _leading(order: tuple[str, ...], able: Set[str]) -> tuple[str, ...]:
    """Those of the order before the first one that is not able."""
    for index, name in enumerate(order):
        if name not in able:
            return order[:index]
    return order


def _drained(name: str, since_s: float, scene: Scene) -> bool:
    policy, replica = scene.policy.drain, scene.load.replicas.get(name)
    drains_s = scene.now_s - since_s
    silent_s = drains_s if replica is None else silent_for_s(replica, scene.now_s)
    if drains_s >= policy.deadline_s or silent_s > scene.policy.silence.lost_after_s:
        return True
    if replica is None:
        return False  # after a restart: whoever was not heard yet may be busy
    return replica.draining and replica.empty and drains_s >= policy.settle_s


def _lost_for_good(scene: Scene) -> tuple[str, ...]:
    """Silent for so long that whoever runs them did not bring them back."""
    return tuple(
        name
        for name in scene.roster.lost
        if silent_for_s(scene.load.replicas[name], scene.now_s) > scene.policy.silence.deaf_after_s
    )


def _tried(memory: PoolMemory, scene: Scene) -> PoolMemory:
    """Who waits for what, and how often starting has failed in a row: each round doubles the time to the next."""
    roster, start = scene.roster, scene.policy.start
    arrived = memory.waiting.keys() & {*roster.warming, *(replica.replica_id for replica in roster.serving)}
    failed, retry_at_s = (0, None) if arrived else (memory.failed_starts, memory.retry_at_s)
    if set(roster.late) - memory.given_up:
        failed += 1
        doubled = 2.0 ** min(failed - 1, _DOUBLINGS)
        retry_at_s = scene.now_s + min(start.longest_retry_s, start.deadline_s * (doubled - 1))
    return msgspec.structs.replace(
        memory,
        waiting={name: memory.waiting.get(name, scene.now_s) for name in (*roster.coming, *roster.late)},
        given_up=frozenset(roster.late),
        failed_starts=failed,
        retry_at_s=retry_at_s,
    )


def _start(memory: PoolMemory, scene: Scene, taken_back: int) -> int:
    waits = memory.retry_at_s is not None and scene.now_s < memory.retry_at_s
    return 0 if waits else max(0, scene.desired - scene.roster.places - taken_back)


def _note(memory: PoolMemory, scene: Scene) -> str:
    missing = scene.desired - scene.roster.places
    if missing <= 0:
        return ""
    deadline_s = scene.policy.start.deadline_s
    if memory.failed_starts:
        wait_s = max(0.0, (memory.retry_at_s or 0.0) - scene.now_s)
        note = f"what was started was not ready within {deadline_s:g} s, {memory.failed_starts} times in a row"
        return f"{note}; the next try is in {wait_s:.0f} s" if wait_s else note
    overdue = memory.raised_at_s is not None and scene.now_s - memory.raised_at_s >= deadline_s
    if scene.load.existing is None and overdue:
        return f"{missing} that were wished for have not come within {deadline_s:g} s"
    return ""
