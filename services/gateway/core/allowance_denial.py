"""Why a request is not let in, and when it might be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from services.gateway.core.allowance import Demand, Denial, Late
from services.gateway.core.allowance_account import Account
from services.gateway.core.allowance_headers import headers
from services.gateway.core.allowance_meter import Meter, Share
from services.gateway.core.allowance_places import Places

_UNHEARD_S = 1.0
"""When whoever was refused before the ledger had answered may come again, if it did not say before that all is used."""
_WORDS = {"requests": "requests a minute", "tokens": "tokens a minute", "streams": "streams at once"}


class Seen(NamedTuple):
    """By what is decided. `alone`: there is no ledger to ask; `late`: for what it has not answered in time."""

    now_s: float
    share: Share
    alone: bool
    late: Late

    @property
    def unheard(self) -> bool:
        """Nobody knows whether there is a place."""
        return self.late is Late.PLACES and not self.alone


def denial_of(accounts: Sequence[Account], demand: Demand, seen: Seen) -> Denial | None:
    """None: nothing speaks against it, as far as is known."""
    for account in accounts:
        for kind, need, wait_s in _waits(account, demand, seen):
            if wait_s is not None:
                told = sorted(accounts, key=lambda each: each is not account)
                known = headers(told, seen.now_s, seen.share if seen.alone or seen.late else None)
                reason = _reason(account, kind, need, sure=kind != "streams" or not seen.unheard)
                return Denial(kind=kind, reason=reason, retry_after_s=wait_s, headers=known)
    return None


def _waits(account: Account, demand: Demand, seen: Seen) -> Iterator[tuple[str, int, float | None]]:
    """Each kind of limit, what is needed of it, and how long that would have to wait, as far as is known."""
    for kind, meter, need in account.needs(demand):
        yield kind, need, _minute_s(meter, need, seen)
    if account.streams is not None:
        yield "streams", demand.choices, _streams_s(account.streams, demand.choices, seen)


def _minute_s(meter: Meter, need: int, seen: Seen) -> float | None:
    """The word of a ledger that is late goes before the own share; without one it may say more in a moment."""
    if seen.alone:
        return meter.alone_for_s(need, seen.now_s, seen.share) or None
    if meter.covers(need, seen.now_s):
        return None
    if not seen.late:
        return meter.denied_for_s(need, seen.now_s)
    if (foretold_s := meter.foretold_s(need, seen.now_s)) is not None:
        return foretold_s
    return min(meter.alone_for_s(need, seen.now_s, seen.share), _UNHEARD_S) or None


def _streams_s(places: Places, choices: int, seen: Seen) -> float | None:
    if seen.alone:
        return places.alone_for_s(choices, seen.share) or None
    if places.covers(choices, seen.now_s):
        return None
    return places.unheard_s() if seen.unheard else places.denied_for_s(choices, seen.now_s)


def _reason(account: Account, kind: str, need: int, *, sure: bool) -> str:
    limit = getattr(account.limits, kind if kind == "streams" else f"{kind}_per_min")
    asked = ""
    if kind != "streams" and need == limit > 1:
        asked = ", and this request asks for all of it"  # or for more: it is let in as one that asks for all
    elif kind == "tokens" or need > 1:
        asked = f", and this request asks for {'about ' if kind == 'tokens' else ''}{need}"
    reached = "is reached" if sure else "may be reached: whoever counts has not answered in time"
    return f"The limit of {account.name}, {limit} {_WORDS[kind]}, {reached}{asked}."
