"""What deciding about a pool again needs to remember, and what was decided."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a load cannot show: figures of all replicas that are heard, averaged over some seconds."""

    at_s: float | None = None
    rate: float = 0.0
    """Tokens/s of one replica with all it can do; 0: never seen."""
    rate_is_guess: bool = False
    """No replica says so: it is the best that was seen, and may be far too low."""
    running: float = 0.0
    held_tokens: float = 0.0
    slots_share: float = 0.0
    kv_filled: float = 0.0
    """KV caches, of those that say how full theirs is: 1.5 are one that is full and one that is half full."""


class DayShape(msgspec.Struct, frozen=True, kw_only=True):
    """The largest need of each slot of the day on some last days, oldest first; `slot` is the one under way."""

    needs: Mapping[int, tuple[float, ...]] = {}
    slot: int | None = None
    largest: float = 0.0


class PoolMemory(msgspec.Struct, frozen=True, kw_only=True):
    """`PoolMemory()` is a pool seen for the first time: to begin with, what is there is what is wanted."""

    desired: int | None = None
    pace: Pace = Pace()
    shape: DayShape = DayShape()
    raised_at_s: float | None = None
    pending_at_s: float | None = None
    """When something was last on its way: from then on the pool shows what it can do."""
    panic_until_s: float | None = None
    highs: tuple[tuple[int, float], ...] = ()
    """The largest need of each slice of the last minutes, oldest first."""
    stepped_at_s: float | None = None
    rising: bool = False
    """Whether the last change of the wish was a raise."""
    turns: tuple[float, ...] = ()
    """When it turned from up to down within the last hour."""
    drains: Mapping[str, float] = {}
    """Replicas that drain by our order, and since when."""
    removing: Mapping[str, float] = {}
    """Replicas that were told to go, and since when; until they are gone there is no way back."""
    gone: Mapping[str, float] = {}
    """When those that the actuator does not know were heard last, until another one with their name is heard."""
    waiting: Mapping[str, float] = {}
    """Replicas that are not ready, and since when."""
    given_up: frozenset[str] = frozenset()
    """Of those, the ones that took too long."""
    failed_starts: int = 0
    """Rounds of starts in a row in which somebody did not become ready."""
    retry_at_s: float | None = None


def remembered(desired: int, drains: Mapping[str, float], now_s: float) -> PoolMemory:
    """After a restart: what was wished before, and who drained then. What was wished may still be starting."""
    return PoolMemory(desired=desired, drains=drains, raised_at_s=now_s)


class PoolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`desired` replicas should serve. `drain` names all that should drain now by our order, `undrain` those that no
    longer should; `remove` those that may go now. `exist` is how many should exist after that, those included that
    still drain; `start` how many of them are missing."""

    pool_id: str
    desired: int
    reason: str
    memory: PoolMemory
    exist: int = 0
    start: int = 0
    drain: tuple[str, ...] = ()
    undrain: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    serving: int = 0
    pending: int = 0
    queue_s: float = 0.0
    """How long the waiting work would take those that serve and those that are coming."""
    capacity_tokens_per_s: float = 0.0
    """Of those that serve."""
