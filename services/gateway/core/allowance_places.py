"""One limit of streams at one gateway: how many run, and for how many the ledger keeps a place for a while."""

from __future__ import annotations

from services.gateway.core.allowance import LeasePolicy, PlacesAsk, PlacesGrant
from services.gateway.core.allowance_meter import Share

_RENEW = 0.5
"""Of the time for which places are held: what is left of it when they are asked for again."""
_RETRY_S = 1.0
"""Nobody knows when a stream ends."""


class Places:
    """A place that is not asked for again in time is free for others: so come back those of a gateway that died. What
    the ledger is told to be free is not handed out any more, whether or not it has heard it yet."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._held = 0
        self._until_s = 0.0
        self._asked_at_s = 0.0
        self._waiting = 0
        self._needed = 0
        self._denied_until_s = 0.0

    def change(self, limit: int) -> None:
        """What the ledger said of the old limit is no answer for the new one."""
        self.limit = limit
        self._denied_until_s = 0.0

    def covers(self, choices: int, now_s: float) -> bool:
        return self.used + choices <= min(self._held, self.limit) and now_s < self._until_s

    def denied_for_s(self, choices: int, now_s: float) -> float | None:
        """Of those that are not covered. More than the limit never will be."""
        return _RETRY_S if choices > self.limit or now_s < self._denied_until_s else None

    def unheard_s(self) -> float:
        """Of those that are not covered, while the ledger does not answer."""
        return _RETRY_S

    def wait_for(self, choices: int) -> None:
        self._waiting += choices

    def take(self, choices: int) -> None:
        self.used += choices

    def leave(self, choices: int) -> None:
        """The ledger may have more for the next one."""
        self.used = max(0, self.used - choices)
        self._denied_until_s = 0.0

    def alone_for_s(self, choices: int, share: Share) -> float:
        return 0.0 if self.used + choices <= share.own(self.limit) else _RETRY_S

    def holds_too_many(self, share: Share) -> bool:
        """Others may be waiting for one. Where some are held in advance, not every stream that ends is told."""
        return self._held > self.used + 2 * share.spare(self.limit)

    def ask(self, now_s: float, share: Share) -> PlacesAsk | None:
        soon = self._until_s - now_s < _RENEW * share.policy.places_s
        renews = (soon and self.used > 0) or self.used > self._held
        if not self._waiting and not renews and not self.holds_too_many(share):
            return None
        spare = share.spare(self.limit) if self.used or self._waiting else 0
        self._needed, self._waiting = self.used + self._waiting, 0
        want = self._needed + spare
        self._held, self._asked_at_s = min(self._held, want), now_s
        return PlacesAsk(limit=self.limit, used=self.used, want=want)

    def parting(self) -> PlacesAsk | None:
        """The last word of a gateway that ends: it holds no place in advance any more."""
        return PlacesAsk(limit=self.limit, used=self.used, want=self.used) if self._held else None

    def granted(self, asked: PlacesAsk, grant: PlacesGrant, now_s: float, policy: LeasePolicy) -> None:
        """From the moment of the question it holds a little shorter than in the ledger, which heard it later."""
        self._waiting = 0
        self._held = grant.held
        self._until_s = self._asked_at_s + 0.8 * policy.places_s
        if self._needed > asked.used and grant.held < self._needed:
            self._denied_until_s = now_s + policy.denied_s

    def lost(self) -> None:
        self._waiting = 0

    def renew(self) -> None:
        """The ledger has forgotten everything."""
        self._held = 0
        self._until_s = self._denied_until_s = 0.0

    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    def is_idle(self) -> bool:
        return not self.used and not self._held
