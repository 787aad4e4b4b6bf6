"""All that moves adapters from one base model to another."""

from __future__ import annotations

import msgspec

from services.registry.aliasing import Aliasing
from services.registry.base_moves import BaseMoves
from services.registry.cutovers import Cutovers
from services.registry.fleet import Fleet
from services.registry.io.database import Database
from services.registry.move_endings import Endings
from services.registry.move_planning import Planning
from services.registry.move_sweep import MoveSweep
from shared.runtime.clock import Clock


class Moving(msgspec.Struct, frozen=True, kw_only=True):
    planning: Planning
    migrations: BaseMoves
    cutovers: Cutovers
    endings: Endings
    sweep: MoveSweep


def moving(database: Database, fleet: Fleet, aliasing: Aliasing, clock: Clock, retrain_deadline_s: float) -> Moving:
    sweep = MoveSweep(database, clock)
    return Moving(
        planning=Planning(database, fleet, clock),
        migrations=BaseMoves(database, clock, retrain_deadline_s),
        cutovers=Cutovers(database, fleet, aliasing, sweep),
        endings=Endings(database, clock),
        sweep=sweep,
    )
