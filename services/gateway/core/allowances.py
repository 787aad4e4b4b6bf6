"""Whether a request is within its limits: by leases of the ledger, or by the gateway's own share while that is away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from services.gateway.core.allowance import (
    FREE,
    Ask,
    Decision,
    Demand,
    Grant,
    Late,
    LeasePolicy,
    NeedsLease,
    Pass,
    Rest,
    Spent,
    Subject,
)
from services.gateway.core.allowance_account import Account
from services.gateway.core.allowance_denial import Seen, denial_of
from services.gateway.core.allowance_headers import headers
from services.gateway.core.allowance_meter import Share

_FORGET_S = 180.0
"""An account in which nothing happens: three of its minutes."""


class Allowances:
    """`admit` is either let in under every limit or charged under none. Whoever is let in is to be settled once."""

    def __init__(self, gateway: str, policy: LeasePolicy) -> None:
        self._gateway = gateway
        self._share = Share(policy=policy)
        self._epoch = ""
        self._accounts: dict[str, Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def gateways(self, count: int) -> None:
        """So many share the limits, this one included."""
        self._share = msgspec.structs.replace(self._share, gateways=max(1, count))

    def admit(
        self, subjects: Sequence[Subject], demand: Demand, now_s: float, *, alone: bool, late: Late = Late.IN_TIME
    ) -> Decision:
        """`alone`: there is no ledger to ask now, and the own share decides. `late`: there is one that has not answered
        in time. Then minutes go by the own share, if the ledger has not said that all is used; but of streams nobody
        takes a place that the ledger did not give, and whoever lacks one waits on until that is late as well."""
        if not subjects:
            return FREE
        accounts, own = [self._account(subject, now_s) for subject in subjects], alone or bool(late)
        if own or not all(account.covers(demand, now_s) for account in accounts):
            if (denial := denial_of(accounts, demand, Seen(now_s, self._share, alone, late))) is not None:
                return denial
            if not alone and (lacking := self._lacking(accounts, demand, now_s, late)).subjects:
                return lacking
        return Pass(
            spent=tuple([self._charge(account, demand, now_s, alone=own) for account in accounts]),
            streams=tuple([account.name for account in accounts if account.streams is not None]),
            choices=demand.choices,
            alone=own,
        )

    def rest(self, admitted: Pass, now_s: float) -> Rest:
        """To be asked in the moment in which it was admitted, or soon after."""
        known = [self._accounts[spent.subject] for spent in admitted.spent if spent.subject in self._accounts]
        return Rest(
            headers=headers(known, now_s, self._share if admitted.alone else None),
            refill=() if admitted.alone else tuple(each.name for each in known if self._is_low(each, now_s)),
        )

    def settle(self, admitted: Pass, tokens: int, now_s: float) -> tuple[str, ...]:
        """The request has ended and came to so many tokens; those who should tell the ledger at once."""
        for spent in admitted.spent:
            if (charged := self._accounts.get(spent.subject)) is not None:
                charged.settle(spent, tokens, now_s, self._share)
        eager = []
        for name in admitted.streams:
            places = known.streams if (known := self._accounts.get(name)) is not None else None
            if places is not None and places.used:
                places.leave(admitted.choices)
                if places.holds_too_many(self._share):
                    eager.append(name)
        return tuple(eager)

    def asks(self, names: Iterable[str], now_s: float) -> list[Ask]:
        """What the ledger has to be told or asked for these accounts."""
        known = [self._accounts[name] for name in names if name in self._accounts]
        asks = [account.ask(self._gateway, self._epoch, now_s, self._share) for account in known]
        return [ask for ask in asks if ask is not None]

    def partings(self) -> list[Ask]:
        """What the ledger is told by a gateway that ends: what it holds is free for others."""
        told = [each.parting(self._gateway, self._epoch, self._share) for each in self._accounts.values()]
        return [ask for ask in told if ask is not None]

    def greeting(self) -> Ask:
        """Asks for nothing: who is the ledger, and what time is it there?"""
        return Ask(subject="", gateway=self._gateway, epoch=self._epoch)

    def names(self, now_s: float) -> list[str]:
        """Of all accounts; what was idle for long is forgotten."""
        old = [name for name, each in self._accounts.items() if now_s - each.touched_at_s > _FORGET_S]
        for name in [name for name in old if self._accounts[name].is_idle(now_s)]:
            del self._accounts[name]
        return list(self._accounts)

    def granted(self, asked: Ask, grant: Grant, now_s: float) -> None:
        """What the ledger answered. A new one is told everything with the next question."""
        self._share = msgspec.structs.replace(self._share, ahead_s=grant.now_ms / 1000 - now_s)
        if grant.epoch != self._epoch:
            self._epoch = grant.epoch
            for account in self._accounts.values():
                account.renew(now_s, grant.now_ms / 1000 - now_s)
        elif not grant.stale and (asking := self._accounts.get(asked.subject)) is not None:
            asking.granted(asked, grant, now_s, self._share.policy)

    def lost(self, asked: Ask) -> None:
        if (account := self._accounts.get(asked.subject)) is not None:
            account.lost(asked)

    def unasked(self, names: Iterable[str]) -> None:
        """The ledger will not be asked for these: it turned out to be away before."""
        for name in names:
            if (account := self._accounts.get(name)) is not None:
                account.unasked()

    def _account(self, subject: Subject, now_s: float) -> Account:
        account = self._accounts.get(subject.name)
        if account is None:
            account = self._accounts[subject.name] = Account(subject, now_s)
        account.limit(subject.limits)
        account.touched_at_s = now_s
        return account

    def _lacking(self, accounts: list[Account], demand: Demand, now_s: float, late: Late) -> NeedsLease:
        """Those whose leases do not cover it, which now wait for more, but for what is late already."""
        lacking, places = [], False
        for account in accounts:
            short = [(meter, need) for _, meter, need in account.needs(demand) if not late and meter.left < need]
            for meter, need in short:
                meter.wait_for(need)
            placeless = account.streams is not None and not account.streams.covers(demand.choices, now_s)
            if placeless and account.streams is not None:
                account.streams.wait_for(demand.choices)
            if short or placeless:
                lacking.append(account.name)
            places = places or placeless
        return NeedsLease(subjects=tuple(lacking), places=places)

    def _charge(self, account: Account, demand: Demand, now_s: float, *, alone: bool) -> Spent:
        account.under_way += 1
        estimate = 0
        leased: tuple[tuple[int, int], ...] = ()
        for kind, meter, need in account.needs(demand):
            taken: tuple[tuple[int, int], ...] = ()
            if alone:
                meter.take_alone(need, now_s, self._share)
            else:
                taken = meter.take(need, now_s)
            if kind == "tokens":
                estimate, leased = need, taken
        if account.streams is not None:
            account.streams.take(demand.choices)
        return Spent(subject=account.name, estimate=estimate, leased=leased, own_slot=int(now_s))

    def _is_low(self, account: Account, now_s: float) -> bool:
        return any(meter.is_low(now_s, self._share) for meter in account.meters)
