"""All limits of one tenant or key at one gateway."""

from __future__ import annotations

import msgspec

from services.gateway.core.allowance import Ask, Demand, Grant, LeasePolicy, PlacesAsk, Spent, Subject, WindowAsk
from services.gateway.core.allowance_meter import Meter, Share
from services.gateway.core.allowance_places import Places
from shared.messages.desired import Limits

_NOTHING = WindowAsk(limit=0, want=0, least=0)


class Account:
    """A limit that changes keeps what is known of it; one that is new knows nothing."""

    def __init__(self, subject: Subject, now_s: float) -> None:
        self.name = subject.name
        self.limits = Limits()
        self.requests: Meter | None = None
        self.tokens: Meter | None = None
        self.streams: Places | None = None
        self.touched_at_s = now_s
        self.under_way = 0
        """Requests that were let in and are to be settled."""
        self.limit(subject.limits)

    def limit(self, limits: Limits) -> None:
        if limits is self.limits:
            return
        self.limits = limits
        self.requests = _meter(self.requests, limits.requests_per_min)
        self.tokens = _meter(self.tokens, limits.tokens_per_min)
        if limits.streams is None:
            self.streams = None
        elif self.streams is None:
            self.streams = Places(limits.streams)
        else:
            self.streams.change(limits.streams)

    @property
    def meters(self) -> list[Meter]:
        return [meter for meter in (self.requests, self.tokens) if meter is not None]

    def needs(self, demand: Demand) -> list[tuple[str, Meter, int]]:
        """What a request takes of each of its minutes: it may ask for all of one, and no more."""
        needs: list[tuple[str, Meter, int]] = []
        if (requests := self.requests) is not None:
            needs.append(("requests", requests, min(demand.choices, requests.limit)))
        if (tokens := self.tokens) is not None:
            needs.append(("tokens", tokens, min(max(1, demand.tokens), tokens.limit)))
        return needs

    def covers(self, demand: Demand, now_s: float) -> bool:
        """By what was leased of every limit, and is not handed out yet."""
        for _, meter, need in self.needs(demand):
            if not meter.covers(need, now_s):
                return False
        return self.streams is None or self.streams.covers(demand.choices, now_s)

    def settle(self, spent: Spent, tokens: int, now_s: float, share: Share) -> None:
        """The request of this has ended, and came to so many tokens."""
        self.under_way = max(0, self.under_way - 1)
        if self.tokens is not None:
            self.tokens.settle(spent.leased, spent.own_slot, tokens - spent.estimate, now_s, share)

    def ask(self, gateway: str, epoch: str, now_s: float, share: Share) -> Ask | None:
        """What the ledger has to be told or asked, if anything."""
        requests = self.requests.ask(now_s, share) if self.requests is not None else None
        tokens = self.tokens.ask(now_s, share) if self.tokens is not None else None
        streams = self.streams.ask(now_s, share) if self.streams is not None else None
        about = Ask(subject=self.name, gateway=gateway, epoch=epoch, places_ms=int(share.policy.places_s * 1000))
        return _filled(about, requests, tokens, streams)

    def parting(self, gateway: str, epoch: str, share: Share) -> Ask | None:
        """What the ledger is to be told of a gateway that ends, if anything."""
        requests = self.requests.parting() if self.requests is not None else None
        tokens = self.tokens.parting() if self.tokens is not None else None
        streams = self.streams.parting() if self.streams is not None else None
        about = Ask(subject=self.name, gateway=gateway, epoch=epoch, places_ms=int(share.policy.places_s * 1000))
        return _filled(about, requests, tokens, streams)

    def granted(self, asked: Ask, grant: Grant, now_s: float, policy: LeasePolicy) -> None:
        slot = grant.now_ms // 1000
        if self.requests is not None and asked.requests is not None and grant.requests is not None:
            self.requests.granted(asked.requests, grant.requests, slot, now_s, policy)
        if self.tokens is not None and asked.tokens is not None and grant.tokens is not None:
            self.tokens.granted(asked.tokens, grant.tokens, slot, now_s, policy)
        if self.streams is not None and asked.streams is not None and grant.streams is not None:
            self.streams.granted(asked.streams, grant.streams, now_s, policy)

    def lost(self, asked: Ask) -> None:
        """Nobody knows whether the ledger heard it."""
        if self.requests is not None and asked.requests is not None:
            self.requests.lost(asked.requests)
        if self.tokens is not None and asked.tokens is not None:
            self.tokens.lost(asked.tokens)
        if self.streams is not None:
            self.streams.lost()

    def unasked(self) -> None:
        """Whoever waited for the next question does not any more."""
        for meter in self.meters:
            meter.lost(_NOTHING)
        if self.streams is not None:
            self.streams.lost()

    def renew(self, now_s: float, ahead_s: float) -> None:
        """The ledger has forgotten everything."""
        for meter in self.meters:
            meter.renew(now_s, ahead_s)
        if self.streams is not None:
            self.streams.renew()

    def is_idle(self, now_s: float) -> bool:
        streamless = self.streams is None or self.streams.is_idle()
        return not self.under_way and streamless and all(meter.is_idle(now_s) for meter in self.meters)


def _filled(about: Ask, requests: WindowAsk | None, tokens: WindowAsk | None, streams: PlacesAsk | None) -> Ask | None:
    if requests is None and tokens is None and streams is None:
        return None
    return msgspec.structs.replace(about, requests=requests, tokens=tokens, streams=streams)


def _meter(known: Meter | None, limit: int | None) -> Meter | None:
    if limit is None:
        return None
    if known is None:
        return Meter(limit)
    known.change(limit)
    return known
