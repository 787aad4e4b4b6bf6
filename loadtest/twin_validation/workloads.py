"""What the twin is asked, after it was calibrated on something else.

Rates leave the machine some room: client, gateway, bus and two replicas share its cores, and what is to be compared is
the fleet, not the kernel's scheduler.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loadtest.workloads.shape import Bursts, Fixed, Lengths, LogNormal, OneHot, Steady, TrafficShape, Uniform, Zipf

CUSTOMERS = 12
ROOMY, TIGHT = "roomy", "tight"
"""Fleets: with a slot for every adapter on every replica, and with fewer slots than adapters."""
SLOTS = {ROOMY: CUSTOMERS + 2, TIGHT: 4}
KILLED = "replica-0"

_SHORT = Lengths(prompt=Fixed(tokens=40), output=Fixed(tokens=16))
_LONG = Lengths(prompt=Fixed(tokens=400), output=Fixed(tokens=100))
_MIXED = Lengths(prompt=LogNormal(mean=150, cv=1.0, cap=800), output=LogNormal(mean=40, cv=1.0, cap=160))
_USUAL = Lengths(prompt=Fixed(tokens=100), output=Fixed(tokens=32))


class HeldOut(msgspec.Struct, frozen=True, kw_only=True):
    """`kill_at_s`: when one replica is killed. Nothing of the first `warm_up_s` counts."""

    name: str
    shape: TrafficShape
    fleet: str = ROOMY
    kill_at_s: float | None = None
    warm_up_s: float = 2.0


def held_out(for_s: float) -> tuple[HeldOut, ...]:
    """Each of so many seconds, and bursts three times as long: with less a handful of prompts decides their p95."""
    plain = TrafficShape(customers=CUSTOMERS, rate_per_s=6.0, for_s=for_s, lengths=_USUAL)

    def shape(seed: int, **changes: Any) -> TrafficShape:
        return msgspec.structs.replace(plain, seed=seed, **changes)

    short = shape(11, rate_per_s=12.0, popularity=Uniform(), lengths=_SHORT)
    long = shape(12, rate_per_s=3.0, popularity=Zipf(s=1.5), lengths=_LONG)
    bursts = shape(14, for_s=3 * for_s, rate_per_s=5.0, lengths=_MIXED, arrivals=Bursts(cv=4.0))
    return (
        HeldOut(name="short, uniform", shape=short),
        HeldOut(name="long, Zipf 1.5", shape=long),
        HeldOut(name="one hot", shape=shape(13, rate_per_s=7.0, popularity=OneHot(share=0.8), arrivals=Steady())),
        HeldOut(name="bursts, lognormal", shape=bursts),
        HeldOut(name="a replica killed", shape=shape(15, rate_per_s=5.0), kill_at_s=for_s / 3),
        HeldOut(name="4 slots, Zipf 1.5", shape=shape(16, popularity=Zipf(s=1.5)), fleet=TIGHT),
        HeldOut(name="4 slots, uniform", shape=shape(17, popularity=Uniform(), lengths=_MIXED), fleet=TIGHT),
    )
