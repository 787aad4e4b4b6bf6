"""What a workload looks like: who calls how often, when, how much, and what changes meanwhile."""

from __future__ import annotations

import math

import msgspec

DAY_S = 86_400.0


class _Part(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    pass


# -- who -----------------------------------------------------------------------------------------------


class Zipf(_Part, frozen=True, kw_only=True, tag="zipf"):
    """The customer of rank k (from 1) has a share ~ 1 / k^s."""

    s: float = 1.0


class Uniform(_Part, frozen=True, kw_only=True, tag="uniform"):
    """Every customer calls as often."""


class OneHot(_Part, frozen=True, kw_only=True, tag="one_hot"):
    """The first customer has `share` of all calls; the others share the rest evenly."""

    share: float = 0.5


# -- when ----------------------------------------------------------------------------------------------


class Poisson(_Part, frozen=True, kw_only=True, tag="poisson"):
    """Independent calls."""


class Bursts(_Part, frozen=True, kw_only=True, tag="bursts"):
    """Gamma gaps between all calls of the fleet with this coefficient of variation: 1 is Poisson, 8 comes in clumps."""

    cv: float = 4.0


class Steady(_Part, frozen=True, kw_only=True, tag="steady"):
    """The same gap every time."""


class Recorded(_Part, frozen=True, kw_only=True, tag="recorded"):
    """Gaps as a trace has them, in its order and over again, stretched to a mean of 1 (loadtest.workloads.trace)."""

    gaps: tuple[float, ...]


class Day(_Part, frozen=True, kw_only=True, tag="day"):
    """The rate over a day, a cosine: `rate_per_s` at the peak, `trough` × that half a day later."""

    trough: float = 0.3
    peak_at_s: float = 14 * 3600.0
    length_s: float = DAY_S


class Surge(_Part, frozen=True, kw_only=True, tag="surge"):
    """Everybody calls `factor` times as often for a while."""

    at_s: float
    for_s: float
    factor: float


# -- how much ------------------------------------------------------------------------------------------


class Fixed(_Part, frozen=True, kw_only=True, tag="fixed"):
    tokens: int


class LogNormal(_Part, frozen=True, kw_only=True, tag="lognormal"):
    """`mean` and `cv` are those before the cap, which cuts single lengths down to it."""

    mean: float
    cv: float = 1.0
    cap: int = 8192


class Geometric(_Part, frozen=True, kw_only=True, tag="geometric"):
    """As if every token were the last with chance 1 / mean; cut at the cap."""

    mean: float
    cap: int = 8192


class Lengths(_Part, frozen=True, kw_only=True, tag="lengths"):
    """Prompt and output are independent."""

    prompt: Fixed | LogNormal | Geometric = Fixed(tokens=750)
    output: Fixed | LogNormal | Geometric = Fixed(tokens=250)


class RecordedLengths(_Part, frozen=True, kw_only=True, tag="recorded"):
    """Prompt and output of one recorded request, which one by chance (loadtest.workloads.trace)."""

    pairs: tuple[tuple[int, int], ...]


# -- what changes --------------------------------------------------------------------------------------


class Drift(_Part, frozen=True, kw_only=True, tag="drift"):
    """Ranks rotate: every `every_s` the first `step` customers become the last, and all others move up."""

    every_s: float
    step: int = 1


class Churn(_Part, frozen=True, kw_only=True, tag="churn"):
    """Aliases move to new versions, so many a second in all, each customer's as likely as another's."""

    moves_per_s: float


class Rise(_Part, frozen=True, kw_only=True, tag="rise"):
    """One customer calls `more_per_s` times a second more than its share, from `at_s` on."""

    tenant: int
    at_s: float
    more_per_s: float
    until_s: float = math.inf


class TrafficShape(msgspec.Struct, frozen=True, kw_only=True):
    """An open-loop workload, the same for the same seed. Customers are numbered by popularity from 0."""

    customers: int
    rate_per_s: float
    for_s: float
    seed: int = 0
    popularity: Zipf | Uniform | OneHot = Zipf()
    arrivals: Poisson | Bursts | Steady | Recorded = Poisson()
    lengths: Lengths | RecordedLengths = Lengths()
    allowance: float = 1.0
    """`max_tokens` as a multiple of what the request will produce."""
    streamed: float = 1.0
    """The share of calls that ask for a stream."""
    day: Day | None = None
    surges: tuple[Surge, ...] = ()
    drift: Drift | None = None
    churn: Churn | None = None
    rises: tuple[Rise, ...] = ()
