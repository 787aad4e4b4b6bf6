"""The runs of the routing report, each a scenario of the twin on fleet A of the spec."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from loadtest.capacity.plan import Plan, plan
from loadtest.capacity.presets import preset
from loadtest.capacity.scenario import scenario, traffic
from loadtest.capacity.trial import Trial
from loadtest.twin.scenario import Scenario
from loadtest.workloads.calls import calls
from loadtest.workloads.shape import Rise
from services.gateway.core.routing import RoutingPolicy

STRATEGIES: Mapping[str, RoutingPolicy] = {
    "random": RoutingPolicy(strategy="random", bounded=False),
    "least_loaded": RoutingPolicy(strategy="least_loaded", bounded=False),
    "affinity": RoutingPolicy(bounded=False),
    "affinity_bounded": RoutingPolicy(),
}
"""The last one is what gateways do unless told otherwise."""

SIZES = (1_000, 5_000, 20_000)
REPLICAS = 26
SEED = 7

HOT_TENANT = 40
HOT_AT_S = 60.0
HOT_PER_S = 8.0
"""Of 250 tokens: it rises from some 25 tokens/s to 2,000."""


def fleet_a(adapters: int = 5_000, rate_per_s: float = 40.0) -> Plan:
    return plan(msgspec.structs.replace(preset("fleet-a"), adapters=adapters, rate_per_s=rate_per_s))


def compared(adapters: int, strategy: str, trial: Trial) -> Scenario:
    """The same calls for every strategy."""
    return msgspec.structs.replace(scenario(fleet_a(adapters), REPLICAS, trial), routing=STRATEGIES[strategy])


def whole(trial: Trial) -> Scenario:
    """Fleet A as the spec has it."""
    return scenario(fleet_a(), REPLICAS, trial)


def rising(trial: Trial) -> Scenario:
    """One customer rises from next to nothing to 2,000 tokens/s, and the fleet as a whole to its peak."""
    calm = fleet_a(rate_per_s=40.0 - HOT_PER_S)
    rise = Rise(tenant=HOT_TENANT, at_s=HOT_AT_S, more_per_s=HOT_PER_S)
    shape = msgspec.structs.replace(traffic(calm, trial), rises=(rise,))
    return msgspec.structs.replace(scenario(calm, REPLICAS, trial), calls=partial(calls, shape))
