"""The actuator for fleets that something else scales: KEDA, an HPA, a person. The wish on the bus and the gauge
`lorafleet_autoscaler_replicas_to_run` are all it takes, so there is nothing left to do."""

from __future__ import annotations

from services.autoscaler.core.orders import PoolSpec, ScaleOrder


class Recommend:
    starts_merged = False

    async def existing(self, pool: PoolSpec) -> frozenset[str] | None:
        return None

    def removal_order(self, pool: PoolSpec, existing: frozenset[str]) -> tuple[str, ...] | None:
        return None

    async def apply(self, order: ScaleOrder) -> None:
        """Whoever follows the wish has heard it already."""
