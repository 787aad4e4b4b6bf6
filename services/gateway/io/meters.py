"""The gateway's Prometheus metrics of requests. What comes with every frame is an addition."""

from __future__ import annotations

from shared.messages.generation import Usage
from shared.messages.reports import CustomerTtft
from shared.messages.usage import BASE
from shared.runtime.clock import Clock
from shared.runtime.metrics import Metrics, Timing, Timings
from shared.ttft_by_customer import TtftByCustomer, TtftView

GAP_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
LAG_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
TOTAL_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0)

_SIGHT_S = 0.5
_BY_TIER = ("tier",)
_BY_END = ("tier", "outcome")


class Meters:
    """`tier` is where the adapter was found, "" if no replica accepted the request. Labels never name customers."""

    def __init__(self, metrics: Metrics) -> None:
        self.streams = metrics.gauge("streams", "Requests that are under way.")
        self._requests = metrics.counter("requests_total", "Requests by how they ended.", ["outcome"])
        self._refusals = metrics.counter("refusals_total", "Requests that ended without a token, by why.", ["reason"])
        self._accepted = metrics.counter(
            "adapter_requests_total", "Requests for adapters, by where replicas found them.", _BY_TIER
        )
        self._ttft_s = metrics.timings("ttft_seconds", "Time to first token by where the adapter was found.", _BY_TIER)
        self.gaps = _ByTier(
            metrics.timings(
                "inter_token_seconds", "Time between two frames with tokens of one stream.", _BY_TIER, GAP_BUCKETS_S
            )
        )
        self._per_token_s = metrics.timings(
            "time_per_output_token_seconds", "First to last token, per token after the first.", _BY_END, GAP_BUCKETS_S
        )
        self._duration_s = metrics.timings(
            "request_seconds", "Time from a request to its end.", _BY_END, TOTAL_BUCKETS_S
        )
        self._tokens = metrics.counter("tokens_total", "Completion tokens that were delivered.")
        self._prompt_tokens = metrics.counter("prompt_tokens_total", "Prompt tokens of requests that ended.")
        self._cached_tokens = metrics.counter(
            "cached_prompt_tokens_total", "Prompt tokens that were in a replica's prefix cache."
        )
        self._failovers = metrics.counter("failovers_total", "Requests sent to another replica, by cause.", ["cause"])
        self._replays = metrics.counter("frame_replays_total", "Gaps in a replica's frames that were asked for again.")
        self._lag_s = metrics.timings(
            "frame_lag_seconds",
            "From the end of a replica's step to its frame here, by both clocks.",
            (),
            LAG_BUCKETS_S,
        )

    def accepted(self, adapter_id: str, tier: str) -> None:
        if adapter_id != BASE:
            self._accepted.labels(tier).inc()

    def first_token(self, tier: str, ttft_s: float) -> None:
        self._ttft_s.of(tier).observe(ttft_s)

    def frame(self, lag_s: float) -> None:
        """A replica whose clock is ahead has no lag."""
        self._lag_s.of().observe(max(0.0, lag_s))

    def failed_over(self, cause: str) -> None:
        self._failovers.labels(cause).inc()

    def replayed(self) -> None:
        self._replays.inc()

    def refused(self, reason: str) -> None:
        self._refusals.labels(reason).inc()

    def turned_away(self, reason: str) -> None:
        self._requests.labels(reason).inc()
        self.refused(reason)

    def ended(self, tier: str, outcome: str, duration_s: float, usage: Usage) -> None:
        """`usage.completion_tokens` are those that were delivered."""
        self._requests.labels(outcome).inc()
        self._duration_s.of(tier, outcome).observe(duration_s)
        self._tokens.inc(usage.completion_tokens)
        self._prompt_tokens.inc(usage.prompt_tokens)
        self._cached_tokens.inc(usage.cached_tokens)

    def per_token(self, tier: str, outcome: str, seconds: float) -> None:
        self._per_token_s.of(tier, outcome).observe(seconds)


class _ByTier(dict[str, Timing]):
    """The series of each tier. It is looked up for every token, and calls are what costs there."""

    def __init__(self, timings: Timings) -> None:
        super().__init__()
        self._timings = timings

    def __missing__(self, tier: str) -> Timing:
        self[tier] = self._timings.of(tier)
        return self[tier]


def show_customers(metrics: Metrics, customers: TtftByCustomer, clock: Clock) -> None:
    """At most as many series as the policy names customers, and "rest": looked up when somebody scrapes."""
    sight = _Sight(customers, clock)
    metrics.gauge_of(
        "customer_ttft_p95_seconds", "95th percentile of the last 5 minutes: of the busiest, the late, and the rest.",
        ("adapter",), lambda: [((one.adapter_id,), one.p95_s) for one in sight.shown()],
    )  # fmt: skip
    metrics.gauge_of(
        "customer_first_tokens", "First tokens that the percentile is of.",
        ("adapter",), lambda: [((one.adapter_id,), one.first_tokens) for one in sight.shown()],
    )  # fmt: skip
    metrics.gauge_of(
        "customers", "Adapters with a first token in the last 5 minutes, and how many of them are above the objective.",
        ("standing",), lambda: [(("active",), sight.view().customers), (("late",), sight.view().late)],
    )  # fmt: skip


class _Sight:
    """One look for all that one scrape asks."""

    def __init__(self, customers: TtftByCustomer, clock: Clock) -> None:
        self._customers = customers
        self._clock = clock
        self._seen: TtftView | None = None
        self._seen_at_s = 0.0

    def view(self) -> TtftView:
        now_s = self._clock.now_s()
        if self._seen is None or not 0.0 <= now_s - self._seen_at_s < _SIGHT_S:
            self._seen, self._seen_at_s = self._customers.view(now_s), now_s
        return self._seen

    def shown(self) -> tuple[CustomerTtft, ...]:
        view = self.view()
        return view.named if view.rest is None else (*view.named, view.rest)
