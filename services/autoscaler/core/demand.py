"""What customers ask for, folded from what gateways say each second: sums that fade, so that nothing is stored."""

from __future__ import annotations

import math

import msgspec

from services.autoscaler.core.load import Demand
from shared.messages.activity import AdapterActivity, PoolActivity


class DemandPolicy(msgspec.Struct, frozen=True, kw_only=True):
    short_s: float = 8.0
    """At 40 requests/s the rate over so long is right within 6 %: enough to tell a leap from noise."""
    average_s: float = 40.0
    """Long enough for bursts of seconds to pass, short against the rise of a morning."""
    long_s: float = 300.0
    due_s: float = 3.0
    """Messages come every second; this much later, nothing more is being asked for."""


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Fading sums over one window. `late` are first tokens after the objective, `refused` those that never came."""

    requests: float = 0.0
    answered: float = 0.0
    late: float = 0.0
    refused: float = 0.0
    tokens: float = 0.0
    messages: float = 0.0
    squares: float = 0.0
    """Of the requests of each message: how widely they spread."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """One pool, or one customer of it. Nothing was heard before `began_s`."""

    began_s: float
    at_s: float
    short: Sums = Sums()
    average: Sums = Sums()
    long: Sums = Sums()


def of_pool(said: PoolActivity) -> Sums:
    """Requests that the fleet had to refuse are demand as well: somebody wanted them served."""
    return Sums(
        requests=said.requests,
        answered=said.first_tokens,
        late=said.late_first_tokens,
        refused=said.refused,
        tokens=said.tokens,
        messages=1.0,
        squares=said.requests**2,
    )


def of_adapter(said: AdapterActivity) -> Sums:
    return Sums(requests=said.requests, answered=said.finished, tokens=said.tokens)


def heard(tally: Tally | None, said: Sums, interval_s: float, now_s: float, policy: DemandPolicy) -> Tally:
    """The tally after one more message. A lost one leaves its second uncounted, which is little of any window."""
    before = tally or Tally(began_s=now_s - interval_s, at_s=now_s)
    passed_s = now_s - before.at_s
    return Tally(
        began_s=before.began_s,
        at_s=now_s,
        short=_plus(before.short, said, passed_s / policy.short_s),
        average=_plus(before.average, said, passed_s / policy.average_s),
        long=_plus(before.long, said, passed_s / policy.long_s),
    )


def demand_of(tally: Tally | None, now_s: float, policy: DemandPolicy) -> Demand:
    if tally is None:
        return Demand()
    passed_s, age_s = _passed_s(tally, now_s, policy), _age_s(tally, now_s, policy)
    long = _plus(tally.long, Sums(), passed_s / policy.long_s)
    short = _plus(tally.short, Sums(), passed_s / policy.short_s)
    return Demand(
        heard=True,
        requests_per_s=_requests_per_s(tally, now_s, policy),
        requests_per_s_short=short.requests / _covered_s(age_s, policy.short_s),
        noise_per_s=_noise(long, age_s, policy.average_s, policy),
        noise_per_s_short=_noise(long, age_s, policy.short_s, policy),
        tokens_per_request=_tokens_per_request(tally, now_s, policy),
        tokens_per_s=long.tokens / _covered_s(age_s, policy.long_s),
        late_share=_share(long),
        late_share_short=_share(short),
    )


def asked_tokens_per_s(tally: Tally, now_s: float, policy: DemandPolicy) -> float:
    """Requests/s by tokens a request, as in the whole demand, of which this takes a tenth of the time: there are
    thousands of customers."""
    return _requests_per_s(tally, now_s, policy) * _tokens_per_request(tally, now_s, policy)


def _requests_per_s(tally: Tally, now_s: float, policy: DemandPolicy) -> float:
    left = math.exp(-_passed_s(tally, now_s, policy) / policy.average_s)
    return left * tally.average.requests / _covered_s(_age_s(tally, now_s, policy), policy.average_s)


def _tokens_per_request(tally: Tally, now_s: float, policy: DemandPolicy) -> float:
    answered = tally.long.answered * math.exp(-_passed_s(tally, now_s, policy) / policy.long_s)
    return tally.long.tokens / tally.long.answered if answered >= 0.5 else 0.0


def _passed_s(tally: Tally, now_s: float, policy: DemandPolicy) -> float:
    """Since the last message; until the next one is due, the last one is how things are."""
    passed_s = now_s - tally.at_s
    return 0.0 if passed_s <= policy.due_s else passed_s


def _age_s(tally: Tally, now_s: float, policy: DemandPolicy) -> float:
    return tally.at_s + _passed_s(tally, now_s, policy) - tally.began_s


def _plus(sums: Sums, more: Sums, windows: float) -> Sums:
    kept = math.exp(-windows)
    return Sums(
        requests=kept * sums.requests + more.requests,
        answered=kept * sums.answered + more.answered,
        late=kept * sums.late + more.late,
        refused=kept * sums.refused + more.refused,
        tokens=kept * sums.tokens + more.tokens,
        messages=kept * sums.messages + more.messages,
        squares=kept * sums.squares + more.squares,
    )


def _covered_s(age_s: float, window_s: float) -> float:
    """How many seconds a fading sum stands for; at the beginning, those that have passed."""
    return max(1e-3, window_s * -math.expm1(-max(0.0, age_s) / window_s))


def _noise(long: Sums, age_s: float, window_s: float, policy: DemandPolicy) -> float:
    """The standard error of a rate over a window, from how widely the messages of minutes spread: as many gateways as
    messages a second share the arrivals. A fading sum averages over twice its window."""
    covered_s = _covered_s(age_s, policy.long_s)
    mean, squares = long.requests / covered_s, long.squares / covered_s
    # A gateway with nothing to say of a pool is silent: below one message a second the others were zeros.
    gateways = max(1.0, long.messages / covered_s)
    return math.sqrt(max(0.0, squares - mean * mean / gateways) / (2.0 * window_s))


def _share(sums: Sums) -> float:
    """Of requests whose first token was late or never came; of next to none, nothing can be said."""
    waited = sums.answered + sums.refused
    return (sums.late + sums.refused) / waited if waited >= 1.0 else 0.0
