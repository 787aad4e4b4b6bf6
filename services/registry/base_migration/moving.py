"""All that moves adapters from one base model to another."""

from __future__ import annotations

import msgspec

from services.registry.base_migration.base_moves import BaseMoves
from services.registry.base_migration.cutovers import Cutovers
from services.registry.base_migration.move_endings import Endings
from services.registry.base_migration.move_planning import Planning
from services.registry.base_migration.move_sweep import MoveSweep
from services.registry.deployment.aliasing import Aliasing
from services.registry.fleet import Fleet
from services.registry.io.database import Database
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
