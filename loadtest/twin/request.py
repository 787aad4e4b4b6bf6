"""One request of a client: as its gateway sees it, and as the replica does that tries to answer it."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadtest.twin.sequence import Sequence
from loadtest.workloads.call import Call
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey


@dataclass(eq=False, slots=True)
class Request:
    """`outcome` is "" while it is under way, then "ok" or the code of its failure. `counted` tokens are those that its
    gateway has told of; `produced` those that attempts before this one have produced."""

    number: int
    gateway: int
    call: Call
    began_s: float
    record: AdapterRecord
    tokens: int
    pool_ids: tuple[str, ...]
    merged_pool_ids: tuple[str, ...]
    tried: tuple[str, ...] = ()
    attempts: int = 0
    dead: tuple[str, ...] = ()
    produced: int = 0
    attempt: Attempt | None = None
    asked_at_s: float = 0.0
    first_s: float | None = None
    ended_s: float | None = None
    outcome: str = ""
    rule: str = ""
    tier: str = ""
    replica_id: str = ""
    pool_id: str = ""
    """Of the replica that was asked last; its own, as long as nobody was."""
    chooses_since_s: float | None = None
    """When its last attempt came to nothing."""
    broke_at_s: float | None = None
    """When its stream broke last, to go on elsewhere."""
    counted: int = 0
    trouble: str = ""


@dataclass(eq=False, slots=True)
class Attempt(Sequence):
    """`record` is None on a replica that has the adapter merged in: all it needs there is a row."""

    id: str = ""
    request: Request = field(kw_only=True)
    replica_id: str = ""
    incarnation: str = ""
    pool_id: str = ""
    record: AdapterRecord | None = None
    tenant: str = ""
    promised: int = 0
    received: bool = False
    arrived_at_s: float = 0.0
    begun: bool = False
    """It has been in the engine."""
    streams: bool = False
    """Its gateway has a token of it."""
    over: bool = False
    tier: str = "gpu"
    slot: int | None = None
    passed_over_since_s: float = 0.0
    paused: bool = False
    moving: bool = False
    """It has produced something since it began or went on."""
    in_line_at_s: float | None = None
    """When it had all that it needs before its turn."""
    turn_at_s: float | None = None
    """When it was first given a row."""
    charged: int = 0
    """Tokens that its customer was charged with."""

    @property
    def key(self) -> AdapterKey | None:
        """Of the slot that it needs."""
        return None if self.record is None else self.record.key
