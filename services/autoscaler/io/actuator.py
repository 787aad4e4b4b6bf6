"""The port behind which replicas are started and stopped. Each way of doing that is one module beside this one."""

from __future__ import annotations

from typing import Protocol

from services.autoscaler.core.orders import PoolSpec, ScaleOrder


class ActuatorFailed(Exception):
    """One sentence that says what could not be done. What was done before stays done, and the same order, told
    again, does the rest."""


class Actuator(Protocol):
    """Starts replicas, and removes those that it is told to remove. Draining them first is not its business."""

    starts_merged: bool
    """Whether it can start replicas that have one adapter merged into their base."""

    async def existing(self, pool: PoolSpec) -> frozenset[str] | None:
        """The ids of the pool's replicas that run or are being started, ready or not; those being stopped are not
        among them. None: it cannot know, or this pool is none of its own. Raises ActuatorFailed."""

    def removal_order(self, pool: PoolSpec, existing: frozenset[str]) -> tuple[str, ...] | None:
        """`existing`, first to go first, where replicas can only be removed in one order (a StatefulSet removes its
        highest ordinal); None: any of them can."""

    async def apply(self, order: ScaleOrder) -> None:
        """Make it so. Called every few seconds with the whole truth, never twice at a time for one pool; what is
        already so is left alone. Returns once it is under way; a replica that starts is heard when it is ready.
        Raises ActuatorFailed."""
