"""What goes wrong, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from loadtest.twin.listening import placement_listens
from loadtest.twin.placing import Placing
from loadtest.twin.replica import Replica
from loadtest.twin.scenario import PROLOGUE_S, Fault
from shared.contracts.catalog import ASSIGNMENT, REPLICA_REPORT, REPLICA_RESIDENCY

if TYPE_CHECKING:
    from loadtest.twin.twin import Twin

_CHANNEL_OF = {
    "lost_reports": REPLICA_REPORT.name,
    "lost_residency": REPLICA_RESIDENCY.name,
    "lost_assignments": ASSIGNMENT.name,
}

_LOOK_S = 1.0
"""How often it is looked whether a replica that drains is empty."""


def schedule(twin: Twin) -> None:
    """Raises ValueError for a fault that nobody knows."""
    for fault in twin.scenario.faults:
        begin = _BEGIN.get(fault.kind)
        if begin is None:
            raise ValueError(f"there is no fault {fault.kind!r}, only {', '.join(sorted(_BEGIN))}")
        twin.agenda.at(PROLOGUE_S + fault.at_s, begin, twin, fault)


def _death(twin: Twin, fault: Fault) -> None:
    for replica in _struck(twin, fault):
        name, files = replica.body.replica_id, list(replica.tiers.files.values())
        twin.fleet.kill(name)
        if fault.for_s:
            twin.agenda.after(fault.for_s, twin.fleet.start_again, name, files)


def _join(twin: Twin, fault: Fault) -> None:
    twin.fleet.start(twin.scenario.pools[0], fault.number)


def _leave(twin: Twin, fault: Fault) -> None:
    for replica in _struck(twin, fault):
        twin.fleet.drain(replica.body.replica_id, True)
        twin.store.drained = twin.store.drained | {replica.body.replica_id}
        twin.agenda.after(_LOOK_S, _let_go, twin, replica)


def _let_go(twin: Twin, replica: Replica) -> None:
    if replica.open:
        twin.agenda.after(_LOOK_S, _let_go, twin, replica)
    else:
        twin.fleet.remove(replica.body.replica_id)


def _pause(twin: Twin, fault: Fault) -> None:
    for replica in _struck(twin, fault):
        replica.pause(twin.agenda.now_s + fault.for_s)


def _slow_store(twin: Twin, fault: Fault) -> None:
    def be_slow(factor: float) -> None:
        for replica in twin.fleet:
            replica.tiers.store_link.factor = factor

    be_slow(fault.factor)
    twin.agenda.after(fault.for_s, be_slow, 1.0)


def _lost(twin: Twin, fault: Fault) -> None:
    name = _CHANNEL_OF[fault.kind]
    twin.wire.chance[name] = fault.chance
    twin.agenda.after(fault.for_s, _forget, twin.wire.chance, name)


def _stale(twin: Twin, fault: Fault) -> None:
    twin.wire.late_s[REPLICA_REPORT.name] = fault.factor
    twin.agenda.after(fault.for_s, _forget, twin.wire.late_s, REPLICA_REPORT.name)


def _forget(harm: dict[str, float], name: str) -> None:
    harm.pop(name, None)


def _placement_pause(twin: Twin, fault: Fault) -> None:
    twin.placements[0].paused = True
    twin.agenda.after(fault.for_s, _go_on, twin.placements[0])


def _go_on(placement: Placing) -> None:
    placement.paused = False


def _second_placement(twin: Twin, fault: Fault) -> None:
    """It listens for a while, and then acts with the next epoch."""
    first = twin.placements[-1]
    second = Placing(twin.scenario.placement, twin.agenda, twin.registry, twin.store, epoch=first.epoch + 1)
    twin.placements.append(second)
    placement_listens(second, twin.wire)
    second.start()


def _struck(twin: Twin, fault: Fault) -> list[Replica]:
    named = twin.fleet.living(fault.replica) if fault.replica else min(twin.fleet, key=_name, default=None)
    return [] if named is None else [named]


def _name(replica: Replica) -> str:
    return replica.body.replica_id


_BEGIN: dict[str, Callable[[Twin, Fault], None]] = {
    "join": _join,
    "leave": _leave,
    "death": _death,
    "pause": _pause,
    "slow_store": _slow_store,
    "lost_reports": _lost,
    "lost_residency": _lost,
    "lost_assignments": _lost,
    "stale_reports": _stale,
    "placement_pause": _placement_pause,
    "second_placement": _second_placement,
}
