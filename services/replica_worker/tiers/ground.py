"""What the upper tiers stand on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.replica_worker.engine.port import Engine
from shared.messages.identity import AdapterKey
from shared.runtime.clock import Clock


@dataclass(frozen=True, kw_only=True)
class Ground:
    """`on_change` is told every adapter that came to a tier or left one."""

    engine: Engine
    clock: Clock
    on_change: Callable[[AdapterKey], None]
