"""One limit of a minute at one gateway: what it has leased of it and not handed out yet."""

from __future__ import annotations

import math
from collections import deque

import msgspec

from services.gateway.core.allowance import WINDOW_SLOTS, LeasePolicy, WindowAsk, WindowGrant
from services.gateway.core.allowance_window import Window


class Lease(msgspec.Struct, kw_only=True):
    slot: int
    left: int
    until_s: float


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway goes by: its policy, how many there are, and how far the ledger's clock is ahead of its own
    (None: nobody knows yet)."""

    policy: LeasePolicy
    gateways: int = 1
    ahead_s: float | None = None

    def own(self, limit: int) -> int:
        """Without a ledger each keeps to its part, and nobody is left with nothing."""
        return max(1, limit // self.gateways)

    def spare(self, limit: int) -> int:
        return int(limit * self.policy.chunk_share / self.gateways)


class Meter:
    """`corrections` are what the ledger has to be told, by its slots; `own` is what this gateway let in, by its own
    clock, whoever allowed it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.own = Window()
        self.corrections: dict[int, int] = {}
        self._leases: deque[Lease] = deque()
        self._left = 0
        self._waiting: list[int] = []
        self._used = 0
        self._reset_at_s = 0.0
        self._denied_until_s = self._retry_at_s = 0.0
        self._denied_least = 0

    def change(self, limit: int) -> None:
        """What the ledger said of the old limit is no answer for the new one."""
        self.limit = limit
        self._denied_until_s = self._retry_at_s = 0.0

    @property
    def left(self) -> int:
        return self._left

    def covers(self, need: int, now_s: float) -> bool:
        self.return_unspent(now_s)
        return self._left >= need

    def denied_for_s(self, need: int, now_s: float) -> float | None:
        """Until it may be let in, if the ledger said a moment ago that there is no more."""
        if now_s < self._denied_until_s and need >= self._denied_least:
            return max(0.0, self._retry_at_s - now_s)
        return None

    def foretold_s(self, need: int, now_s: float) -> float | None:
        """Until it may be let in by the ledger's last word, however old: for whoever cannot wait for another. None: it
        said nothing of the kind, or that time has come."""
        left_s = self._retry_at_s - now_s
        return left_s if left_s > 0 and need >= self._denied_least else None

    def wait_for(self, need: int) -> None:
        """The next lease is to be enough for this as well."""
        self._waiting.append(need)

    def take(self, need: int, now_s: float) -> tuple[tuple[int, int], ...]:
        """Out of the oldest leases, which `covers` it; by their slots."""
        self.own.add(int(now_s), need)
        self._left -= need
        taken = []
        while need > 0:
            lease = self._leases[0]
            part = min(need, lease.left)
            lease.left -= part
            need -= part
            taken.append((lease.slot, part))
            if not lease.left:
                self._leases.popleft()
        return tuple(taken)

    def take_alone(self, need: int, now_s: float, share: Share) -> None:
        """Let in by this gateway's own word; the ledger is told when it is there."""
        self.own.add(int(now_s), need)
        if share.ahead_s is not None:
            self._correct(int(now_s + share.ahead_s), need)

    def alone_for_s(self, need: int, now_s: float, share: Share) -> float:
        """By the own share: until it fits; 0: it does. What is more than the share fits once nothing is used."""
        own = share.own(self.limit)
        return self.own.wait_s(min(need, own), own, now_s)

    def settle(self, taken: tuple[tuple[int, int], ...], own_slot: int, more: int, now_s: float, share: Share) -> None:
        """It was `more` than estimated, or less. What was too much is given back to the slots that it came from, so
        that nobody can have it twice in one minute; what was too little counts from now on."""
        if more >= 0:
            if more:
                self.take_alone(more, now_s, share)
            return
        if own_slot >= int(now_s) - WINDOW_SLOTS:
            self.own.add(own_slot, more)
        slots = taken
        if not taken and share.ahead_s is not None:
            slots = ((int(own_slot + share.ahead_s), -more),)
        for slot, count in reversed(slots):
            part = min(count, -more)
            self._correct(slot, -part)
            more += part

    def return_unspent(self, now_s: float) -> None:
        """What was leased too long ago goes back: it would be handed out in a minute in which it does not count."""
        while self._leases and self._leases[0].until_s <= now_s:
            lease = self._leases.popleft()
            self._left -= lease.left
            self._correct(lease.slot, -lease.left)

    def spare(self, now_s: float, share: Share) -> int:
        """What should be there when the next request comes."""
        return min(share.spare(self.limit), int(self.own.rate_per_s(now_s) * share.policy.ahead_s))

    def is_low(self, now_s: float, share: Share) -> bool:
        return 2 * self._left < self.spare(now_s, share)

    def ask(self, now_s: float, share: Share) -> WindowAsk | None:
        """What to ask of the ledger, if there is anything; corrections are in its hands then."""
        self.return_unspent(now_s)
        wanted = sum(self._waiting) + self.spare(now_s, share)
        want = max(0, wanted - self._left) if self._waiting or self.is_low(now_s, share) else 0
        least = min(1 if not self._waiting else max(1, min(self._waiting) - self._left), max(1, self.limit))
        self._waiting.clear()
        add, self.corrections = self.corrections, {}
        if not want and not add:
            return None
        return WindowAsk(limit=self.limit, want=want, least=least if want else 0, add=add)

    def parting(self) -> WindowAsk | None:
        """The last word of a gateway that ends: whatever it leased and did not hand out goes back."""
        self.return_unspent(math.inf)
        add, self.corrections = self.corrections, {}
        return WindowAsk(limit=self.limit, want=0, least=0, add=add) if add else None

    def granted(self, asked: WindowAsk, grant: WindowGrant, slot: int, now_s: float, policy: LeasePolicy) -> None:
        self._waiting.clear()
        self._used, self._reset_at_s = grant.used, now_s + grant.reset_ms / 1000
        if grant.granted:
            self._leases.append(Lease(slot=slot, left=grant.granted, until_s=now_s + policy.lease_s))
            self._left += grant.granted
            if now_s >= self._denied_until_s:
                self._retry_at_s = 0.0
        if asked.want and not grant.granted:
            wait_s = grant.wait_ms / 1000
            self._retry_at_s = now_s + wait_s
            self._denied_until_s = now_s + min(wait_s, policy.denied_s)
            self._denied_least = asked.least + self._left

    def lost(self, asked: WindowAsk) -> None:
        """The ledger may or may not have heard it. What was to be added is said again, what was to be taken off is
        not: at worst a little less is let in."""
        self._waiting.clear()
        for slot, count in asked.add.items():
            if count > 0:
                self._correct(slot, count)

    def renew(self, now_s: float, ahead_s: float) -> None:
        """The ledger has forgotten everything: it gets all that this gateway let in within the minute."""
        self._leases.clear()
        self._left = 0
        self._denied_until_s = self._retry_at_s = 0.0
        shift = int(now_s + ahead_s) - int(now_s)
        self.corrections = {slot + shift: count for slot, count in self.own.slots(now_s).items() if count > 0}

    def remaining(self, now_s: float) -> int:
        """About: others may have handed out some of it since the ledger was asked."""
        return max(0, self.limit - self._used + self._left)

    def reset_s(self, now_s: float) -> float:
        return max(0.0, self._reset_at_s - now_s)

    def is_idle(self, now_s: float) -> bool:
        return not self._left and not self.corrections and not any(self.own.slots(now_s).values())

    def _correct(self, slot: int, count: int) -> None:
        self.corrections[slot] = self.corrections.get(slot, 0) + count
