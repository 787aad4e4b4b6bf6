"""What a replica is, and what it stands on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from loadtest.twin.agenda import Agenda
from loadtest.twin.crowd import Crowd
from loadtest.twin.registry import Registry
from loadtest.twin.request import Attempt
from loadtest.twin.scenario import Scenario
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import MeasuredTable, StepTable
from loadtest.twin.wire import Wire
from services.replica_worker.core.admission import Refusal
from shared.messages.identity import AdapterKey


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica is, and how large."""

    replica_id: str
    incarnation: str
    pool_id: str
    slots: int
    rank_limit: int
    ram_bytes: int
    disk_bytes: int
    queue_limit: int
    batch: BatchShape
    steps: StepTable | MeasuredTable
    weight: float = 1.0
    merged: AdapterKey | None = None


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What all replicas stand on. A gateway is told of a request's first token, of its end and of a refusal, at the
    moment when the replica sends them. `crowd`: the replicas that share processors; None where it does not matter."""

    agenda: Agenda
    scenario: Scenario
    registry: Registry
    wire: Wire
    draw: random.Random
    on_first: Callable[[Attempt], None]
    on_ended: Callable[[Attempt], None]
    on_refused: Callable[[Attempt, Refusal], None]
    crowd: Crowd | None = None
