"""What this replica is, and whether it takes requests."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """`incarnation` is new with every process: numbers and sequences start again with it."""

    replica_id: str
    incarnation: str
    pool_id: str
    base_model_hash: str


@dataclass
class Standing:
    """`not_ready` is the reason, "" once the replica serves."""

    not_ready: str = "the engine is starting"
    draining: str = ""
    golden: str = ""
    """What became of the base model's golden prompt: "right", "unchecked", "" before."""

    @property
    def ready(self) -> bool:
        return not self.not_ready
