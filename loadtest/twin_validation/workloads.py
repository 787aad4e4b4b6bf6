"""What the twin is asked, after it was calibrated on something else.

Rates leave the machine some room: client, gateway, bus and two replicas share its cores, and what is to be compared is
the fleet, not the kernel's scheduler.
"""

from __future__ import annotations

import msgspec

from loadtest.workloads.shape import (
    Bursts,
    Fixed,
    Lengths,
    LogNormal,
    OneHot,
    Poisson,
    Steady,
    TrafficShape,
    Uniform,
    Zipf,
)

CUSTOMERS = 12
ROOMY, TIGHT = "roomy", "tight"
"""Fleets: with a slot for every adapter on every replica, and with fewer slots than adapters."""
SLOTS = {ROOMY: CUSTOMERS + 2, TIGHT: 4}
KILLED = "replica-0"

_SHORT = Lengths(prompt=Fixed(tokens=40), output=Fixed(tokens=16))
_LONG = Lengths(prompt=Fixed(tokens=400), output=Fixed(tokens=100))
_MIXED = Lengths(prompt=LogNormal(mean=150, cv=1.0, cap=800), output=LogNormal(mean=40, cv=1.0, cap=160))
_POISSON = Poisson()
_USUAL = Lengths(prompt=Fixed(tokens=100), output=Fixed(tokens=32))


class HeldOut(msgspec.Struct, frozen=True, kw_only=True):
    """`kill_at_s`: when one replica is killed. Nothing of the first `warm_up_s` counts."""

    name: str
    shape: TrafficShape
    fleet: str = ROOMY
    kill_at_s: float | None = None
    warm_up_s: float = 2.0


def held_out(for_s: float) -> tuple[HeldOut, ...]:
    """Each of so many seconds."""
    return (
        HeldOut(name="short, uniform", shape=_shape(for_s, 11, 12.0, Uniform(), lengths=_SHORT)),
        HeldOut(name="long, Zipf 1.5", shape=_shape(for_s, 12, 3.0, Zipf(s=1.5), lengths=_LONG)),
        HeldOut(name="one hot", shape=_shape(for_s, 13, 7.0, OneHot(share=0.8), arrivals=Steady())),
        HeldOut(name="bursts, lognormal", shape=_shape(for_s, 14, 5.0, Zipf(), lengths=_MIXED, arrivals=Bursts(cv=4))),
        HeldOut(name="a replica killed", shape=_shape(for_s, 15, 5.0, Zipf()), kill_at_s=for_s / 3),
        HeldOut(name="4 slots, Zipf 1.5", shape=_shape(for_s, 16, 6.0, Zipf(s=1.5)), fleet=TIGHT),
        HeldOut(name="4 slots, uniform", shape=_shape(for_s, 17, 6.0, Uniform(), lengths=_MIXED), fleet=TIGHT),
    )


def _shape(
    for_s: float,
    seed: int,
    rate_per_s: float,
    popularity: Zipf | Uniform | OneHot,
    *,
    lengths: Lengths = _USUAL,
    arrivals: Poisson | Bursts | Steady = _POISSON,
) -> TrafficShape:
    return TrafficShape(
        customers=CUSTOMERS, for_s=for_s, seed=seed, rate_per_s=rate_per_s, popularity=popularity, lengths=lengths,
        arrivals=arrivals,
    )  # fmt: skip
