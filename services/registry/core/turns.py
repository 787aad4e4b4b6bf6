"""Whose turn it is to be attended to, and how much of that a batch of registrations leaves room for."""

from __future__ import annotations

import msgspec

from shared.messages.adapters import AdapterRegistered

_REST = 9.0
"""So many times as long as a turn took, nobody new begins in a batch: a tenth of the time of one replica is left."""


class Entrant(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter that waits for its turn. `ready_at_s` is since when, by the wall clock; None for now."""

    adapter_id: str
    tenant_id: str
    awaited: bool = False
    """Announced with an alias: somebody waits for its deployment."""
    begun: bool = False
    """It has had a turn: the time that it may take is running."""
    ready_at_s: float | None = None

    @property
    def lane(self) -> tuple[str, bool, bool]:
        """Lanes take turns, so nobody waits for all that another tenant has sent; within one the first comes first."""
        return self.tenant_id, self.awaited, self.begun


def entrant(announced: AdapterRegistered) -> Entrant:
    """Who is ready now."""
    return Entrant(adapter_id=announced.adapter_id, tenant_id=announced.tenant_id, awaited=announced.alias is not None)


class TurnPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """So many at once; in a batch one, unless somebody has waited for `give_way_s`. Rests are no longer than
    `longest_rest_s`."""

    at_once: int
    give_way_s: float = 0.0
    longest_rest_s: float = 0.0


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What there is now: turns under way, those among them that are somebody's first, since when the one waits who has
    waited longest, and until when there is rest."""

    batch: bool
    under_way: int
    first_under_way: int
    oldest_since_s: float
    rest_until_s: float


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one more may begin; if not, time alone changes that at `again_at_s`."""

    granted: bool
    reason: str
    again_at_s: float | None = None


def may_begin(sight: Sight, policy: TurnPolicy, now_s: float, *, begun: bool) -> Leave:
    """What has begun is not held up by a batch: its deadline is running."""
    if sight.under_way >= policy.at_once:
        return Leave(granted=False, reason="as many as may be are under way")
    if begun or not sight.batch:
        return Leave(granted=True, reason="its time is running" if begun else "nobody goes first")
    patience_ends_s = sight.oldest_since_s + policy.give_way_s
    if now_s >= patience_ends_s:
        return Leave(granted=True, reason="somebody has given way for long enough")
    if sight.first_under_way:
        return Leave(granted=False, reason="a batch leaves room for one", again_at_s=patience_ends_s)
    if now_s < sight.rest_until_s:
        again_at_s = min(sight.rest_until_s, patience_ends_s)
        return Leave(granted=False, reason="a batch goes first", again_at_s=again_at_s)
    return Leave(granted=True, reason="a batch leaves room for one")


def rest_s(took_s: float, policy: TurnPolicy) -> float:
    """How long nobody new begins after a turn, while a batch is under way."""
    return min(_REST * took_s, policy.longest_rest_s)
