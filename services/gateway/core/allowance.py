"""What is asked for under a limit, and what comes of it: the words of all that decides about limits.

A limit of a minute holds in every 60 seconds, not in minutes by the clock. Time is cut into slots of a second; what was
let in is summed over the slot under way and the 60 before it, so that no 60 seconds can lie outside the sum:

    used(t) = Σ n[s],  ⌊t⌋ - 60 ≤ s ≤ ⌊t⌋        let in n more if used(t) + n ≤ limit

One place, the ledger, sums over all gateways. A gateway takes leases from it and hands out of them; a lease counts in
the slot in which it was taken, and what is not handed out within `lease_s` goes back. So in any 60 seconds no more is
let in than the limit, and what gateways held at their beginning: `chunk_share` of the limit, all together.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from shared.messages.desired import Limits

WINDOW_SLOTS = 60
"""That are counted besides the one under way."""


class LeasePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway leases ahead what it hands out in `ahead_s`, but no more than its part of `chunk_share` of the limit.
    `denied_s` is how long it believes a ledger that has no more; `places_s` how long it holds streams unless it says
    again that it does."""

    chunk_share: float = 0.05
    ahead_s: float = 1.0
    lease_s: float = 2.0
    denied_s: float = 0.2
    places_s: float = 5.0


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever has limits: `name` is "tenant acme" or "key k1"."""

    name: str
    limits: Limits


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may come to. Each of its `choices` counts as a request, and runs as a stream."""

    tokens: int
    choices: int = 1


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that a request was let in with, under one limit: `estimate` of them, by the ledger's slots of the leases
    that they came from; none, if no ledger said yes. `own_slot` is by the gateway's clock."""

    subject: str
    estimate: int
    leased: tuple[tuple[int, int], ...]
    own_slot: int


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """A request is let in; to be settled when it ends. `alone`: by the gateway's own word."""

    spent: tuple[Spent, ...] = ()
    streams: tuple[str, ...] = ()
    choices: int = 1
    alone: bool = False


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What can wait until a request that was let in is on its way: what its client is told is left, and who should
    lease more before the next one comes."""

    headers: Mapping[str, str] = {}
    refill: tuple[str, ...] = ()


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """It is not let in, and `retry_after_s` says when it might be. `kind` is "requests", "tokens" or "streams"."""

    kind: str
    reason: str
    retry_after_s: float
    headers: Mapping[str, str] = {}


class Late(IntEnum):
    """What a request has waited for as long as it may: PLACES is for a place as well, which takes longer."""

    IN_TIME = 0
    MINUTES = 1
    PLACES = 2


class NeedsLease(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody can say before the ledger was asked for these. `places`: for streams, too, of which another gateway may
    hold all."""

    subjects: tuple[str, ...]
    places: bool = False


Decision = Pass | Denial | NeedsLease
FREE = Pass()
"""For whoever has no limits."""


# What a gateway and the ledger say to each other.


class WindowAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Lease `want`, or whatever there is of it if that is at least `least`. `add` corrects slots of before."""

    limit: int
    want: int
    least: int
    add: Mapping[int, int] = {}


class PlacesAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Hold places for `want` streams, and for the `used` that run already in any case."""

    limit: int
    used: int
    want: int


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`epoch` is the ledger's as it was last heard. A ledger of another one, which has forgotten everything, does
    nothing but say so. `now_ms` is for a ledger that is to go by another clock than its own."""

    subject: str
    gateway: str
    epoch: str
    places_ms: int = 0
    requests: WindowAsk | None = None
    tokens: WindowAsk | None = None
    streams: PlacesAsk | None = None
    now_ms: int | None = None


class WindowGrant(msgspec.Struct, frozen=True, kw_only=True):
    """`used` with what was granted. `wait_ms`: until `least` would have fitted; `reset_ms`: until nothing is used."""

    granted: int
    used: int
    wait_ms: int
    reset_ms: int


class PlacesGrant(msgspec.Struct, frozen=True, kw_only=True):
    held: int


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """`now_ms` is the ledger's clock, from which slots are counted. `stale`: it was asked by another epoch."""

    epoch: str
    now_ms: int
    stale: bool = False
    requests: WindowGrant | None = None
    tokens: WindowGrant | None = None
    streams: PlacesGrant | None = None
