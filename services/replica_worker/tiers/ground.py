"""What the upper tiers stand on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.replica_worker.engine.port import Engine
from services.replica_worker.tiers.errors import EffectWrong
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey
from shared.runtime.clock import Clock


@dataclass(frozen=True, kw_only=True)
class Ground:
    """`on_change` is told every adapter that came to a tier or left one; `on_outcome` how the proof of each load
    ended; `on_mismatch` which adapter is refused for what its slot does; `on_lost` whose stored bytes are gone or
    wrong, how, and a sentence."""

    engine: Engine
    clock: Clock
    on_change: Callable[[AdapterKey], None]
    on_outcome: Callable[[str], None]
    on_mismatch: Callable[[AdapterRecord, EffectWrong], Awaitable[None]]
    on_lost: Callable[[AdapterRecord, str, str], None]
