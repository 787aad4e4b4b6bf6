"""Every figure that scaling turns on, with the reason for its value; `tests/simulation/test_autoscaler.py` holds them
against an oracle that knows the load in advance."""

from __future__ import annotations

import msgspec


class SilencePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Reports come every second. A silent replica is no capacity, and keeps its place."""

    silent_after_s: float = 3.0
    """Three reports missed in a row: one or two lost messages are no silence."""
    lost_after_s: float = 30.0
    """Then its place is filled. Placement forgets it at the same age."""
    deaf_after_s: float = 120.0
    """If most replicas of a pool fall silent at once, it is our hearing that fails; they keep their places for this
    long, unless the actuator says that they are gone."""


class NeedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    utilisation: float = 0.8
    """Of a replica's measured token rate. Above it the time to first token climbs steeply; the fifth that is left
    carries the noise of arrivals, and a rise of a quarter, until new replicas are ready."""
    sure_errors: float = 1.0
    """Standard errors taken off a demand before it raises or keeps anything: of many noisy looks the largest would
    win, and it is the largest of minutes that stays."""
    row_utilisation: float = 0.9
    """Of its rows. Rows lag behind what arrives, so they only speak up where the demand is not known or wrong."""
    max_queue_s: float = 2.0
    """Predicted work that waits longer than this calls for more replicas: above it the objective for the first token
    (1 s) is long gone."""
    ahead_s: float = 10.0
    """How far the queue is predicted: what arrives above capacity within this time counts as queued."""
    clear_s: float = 120.0
    """Within how long a queue should be gone. Much shorter, and a queue that built up while replicas started would be
    answered with replicas that nobody needs once it is worked off."""
    tokens_in_flight_per_replica: int = 64_000
    """32 rows of 2,000 tokens: what a replica may have promised, or as much as its KV cache holds if it says that it
    holds more. One that holds less is judged by how full it is: promises are more than what is produced in the end."""
    kv_pressure: float = 0.8
    """Of the KV cache. Those who run grow into the rest; without any, the youngest is thrown out and computed again."""
    slot_pressure: float = 0.9
    late_share: float = 0.05
    """The objective is a p95: one first token in twenty may be late."""
    late_burn: float = 2.0
    """Acted upon if lately twice as many were late as may be, and over the longer window as many as may be."""
    late_min_utilisation: float = 0.7
    """Of those who serve and come. Below it a late first token is not for lack of replicas: a slow store, a cold tail,
    or a queue that is being worked off. More would not help."""
    rate_half_life_s: float = 600.0
    average_s: float = 20.0
    """Over which running requests, tokens and slots are averaged."""


class PacePolicy(msgspec.Struct, frozen=True, kw_only=True):
    panic_factor: float = 1.2
    """The need of the last seconds over what serves and starts, from which one does not wait for the average: with a
    utilisation of 0.8, that is when queues begin to grow."""
    panic_noise: float = 3.5
    """By how many standard errors the last seconds must be above the average: bursty traffic leaps by chance, and an
    hour has hundreds of looks. At 3.0 it did so three times an hour, which bought replicas for minutes and used up the
    turns that real bursts needed; at 4.0 half as many requests again were late."""
    panic_s: float = 60.0
    """How long no replica is taken away after that."""
    growth: float = 2.0
    """Symptoms (queues, rows, tokens, slots, late first tokens) at most double a pool at a time: they say more about
    the past than about the load. Demand is believed at once."""
    settle_s: float = 15.0
    """How long new replicas may show what they do before symptoms are believed again."""
    down_hold_s: float = 180.0
    """For how long fewer must have been enough. Shorter costs reversals, longer pays for bursts that are over."""
    down_step_s: float = 30.0
    down_share: float = 0.25
    """Of a pool leaves in one step, at least one replica: each takes its share of the adapters' places with it."""
    down_margin: float = 0.15
    """Of a replica, by which fewer must be enough: a need that swings around a whole number changes nothing."""
    turn_share: float = 0.1
    """Of the pool that a turn from up to down must save, for each one within the hour: small ones would use up the few
    that there are, and the fleet of a burst be kept for the rest of the hour."""
    turns_per_hour: int = 3
    """How often an hour the wish may turn from up to down. Each is answered by at most one turn back, so there are at
    most six reversals an hour."""


class StartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    deadline_s: float = 180.0
    """How long a replica may take to become ready before it no longer counts as coming: base model 14 s, download,
    engine start and warm-up in minutes."""
    longest_retry_s: float = 1_800.0


class DrainPolicy(msgspec.Struct, frozen=True, kw_only=True):
    settle_s: float = 5.0
    """How long a replica must be draining before an empty one is believed to stay empty: gateways hear of it late."""
    deadline_s: float = 600.0
    """The longest a request may run."""


class FloorPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The need of the same time of day on the last days, as a floor. Off: traffic that has no daily shape is better
    off without, and a new fleet has no last days."""

    enabled: bool = False
    slot_s: float = 900.0
    days: int = 7
    quantile: float = 0.5
    lead_s: float = 180.0
    """Looked up this long ahead, so that what starts is ready when it is needed."""


class ScalePolicy(msgspec.Struct, frozen=True, kw_only=True):
    min_replicas: int = 1
    max_replicas: int = 40
    silence: SilencePolicy = SilencePolicy()
    need: NeedPolicy = NeedPolicy()
    pace: PacePolicy = PacePolicy()
    start: StartPolicy = StartPolicy()
    drain: DrainPolicy = DrainPolicy()
    floor: FloorPolicy = FloorPolicy()
