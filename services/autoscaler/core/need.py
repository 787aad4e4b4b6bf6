"""How many replicas a load needs, each measure with its own reason; the largest wins."""

from __future__ import annotations

import math

import msgspec

from services.autoscaler.core.fold import PoolLoad


class NeedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    max_queue_s: float = 2.0
    """Work that waits longer than this calls for more replicas: above it the objective for the first
    token (1 s) is long gone."""
    clear_s: float = 180.0
    """Within how long the queue should be gone. Much shorter, and a queue that built up while replicas
    started would be answered with replicas that nobody needs once it is worked off."""
    row_utilisation: float = 0.8
    tokens_in_flight_per_replica: int = 64_000
    """32 rows of 2,000 tokens."""
    slot_pressure: float = 0.9


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a load cannot show. All in tokens/s."""

    rate: float = 0.0
    """Of one busy replica: the best seen lately; 0 if never measured."""
    queue_growth: float = 0.0
    """Of the pool's queue, smoothed; negative while it shrinks."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    replicas: int
    reason: str


def need_of(load: PoolLoad, pace: Pace, capacity: int, policy: NeedPolicy) -> Need:
    """Replicas for this load. `capacity` counts those that serve and those that are about to."""
    measures = (
        _by_queue(load, pace, capacity, policy),
        _by_rows(load, policy),
        _by_tokens(load, policy),
        _by_slots(load, policy),
    )
    return max(measures, key=lambda need: need.replicas)


def queue_s(load: PoolLoad, rate: float, capacity: int) -> float:
    """How long the waiting work would take, in seconds; 0 while no rate has been measured."""
    return load.queued_tokens / (rate * capacity) if rate and capacity else 0.0


def _by_queue(load: PoolLoad, pace: Pace, capacity: int, policy: NeedPolicy) -> Need:
    """Enough to stop the queue from growing and to work it off in time; none if it is on its way."""
    waiting_s = queue_s(load, pace.rate, capacity)
    if waiting_s <= policy.max_queue_s:
        return Need(replicas=0, reason="the queue is short")
    missing = max(0.0, pace.queue_growth + load.queued_tokens / policy.clear_s)
    return Need(
        replicas=load.ready + math.ceil(missing / pace.rate),
        reason=(
            f"{load.queued_tokens:.0f} queued tokens, {pace.queue_growth:+.0f} a second, "
            f"are {waiting_s:.1f} s of work for {capacity} replicas"
        ),
    )


def _by_rows(load: PoolLoad, policy: NeedPolicy) -> Need:
    if not (load.ready and load.rows):
        return Need(replicas=0, reason="no replica has rows yet")
    per_replica = policy.row_utilisation * load.rows / load.ready
    return Need(
        replicas=math.ceil(load.running / per_replica),
        reason=f"{load.running} running requests at {per_replica:.0f} a replica",
    )


def _by_tokens(load: PoolLoad, policy: NeedPolicy) -> Need:
    """Of what runs: those are the tokens that must be held in memory."""
    held_tokens = load.tokens_in_flight - load.queued_tokens
    return Need(
        replicas=math.ceil(held_tokens / policy.tokens_in_flight_per_replica),
        reason=f"{held_tokens:.0f} tokens in flight at {policy.tokens_in_flight_per_replica} a replica",
    )


def _by_slots(load: PoolLoad, policy: NeedPolicy) -> Need:
    pressure = load.slots_busy / load.slots if load.slots else 0.0
    if pressure < policy.slot_pressure:
        return Need(replicas=0, reason="slots are free")
    return Need(replicas=load.ready + 1, reason=f"{load.slots_busy} of {load.slots} slots are busy")
