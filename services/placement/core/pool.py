"""What a pool's turn depends on, and what it leaves for the next."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from services.placement.core.catalog import Records
from services.placement.core.heat import HeatPolicy
from services.placement.core.needs import NeedPolicy, Needs
from services.placement.core.owners import ChurnPolicy, Moves, Owners
from services.placement.core.plan import Held, ReplicaPlan
from services.placement.core.pressure import Thrash, ThrashPolicy
from services.placement.core.rates import Rate
from services.placement.core.seating import Seating
from shared.messages.desired import Member
from shared.nearest import Nearest

_SPARE_DEPTH = 2
"""Ranked beyond the usual owners, so that one who cannot own is passed over without ranking everybody."""


class PoolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`owners` is how many every adapter has."""

    owners: int = 2
    need: NeedPolicy = NeedPolicy()
    churn: ChurnPolicy = ChurnPolicy()
    thrash: ThrashPolicy = ThrashPolicy()
    heat: HeatPolicy = HeatPolicy()


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier placement has written of a pool: who holds each adapter, and who in a slot."""

    holders: Mapping[str, Owners] = {}
    slotted: Mapping[str, Owners] = {}


class PoolNow(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a pool's turn depends on. `members` are those that may own; `share` is what one owner should
    serve of one adapter, in tokens a second; `anew`: make every plan again, whatever has changed."""

    pool_id: str
    now_s: float
    records: Records
    members: Mapping[str, Member]
    held: Mapping[str, Held]
    heats: Mapping[str, int]
    rates: Mapping[str, Rate]
    share: float
    evictions_per_min: Mapping[str, float] = {}
    anew: bool = False


class PoolMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool's turn leaves for the next. `holders` are by adapter, `shares` the adapters by replica; `late` are
    the adapters with a holder whose turn has not come."""

    nearest: Nearest
    records: Records = {}
    members: Mapping[str, Member] = {}
    heats: Mapping[str, int] = {}
    needs: Needs = {}
    counts: Mapping[str, int] = {}
    """Of the adapters with more owners than usual."""
    thrash: Thrash = Thrash()
    holders: Mapping[str, Owners] = {}
    late: AbstractSet[str] = frozenset()
    moves: Moves = Moves()
    shares: Mapping[str, AbstractSet[str]] = {}
    pinned: AbstractSet[str] = frozenset()
    seating: Seating = Seating()
    plans: Mapping[str, ReplicaPlan] = {}

    @property
    def slotted(self) -> Mapping[str, Owners]:
        """The owners that keep a slot, by adapter."""
        return self.seating.slotted


def beginning(policy: PoolPolicy, recalled: Recalled, needed: Needs, thrash: Thrash) -> PoolMemory:
    return PoolMemory(
        nearest=Nearest(policy.owners + _SPARE_DEPTH, {}),
        needs=needed,
        thrash=thrash,
        holders=recalled.holders,
        seating=Seating(slotted=recalled.slotted),
    )
