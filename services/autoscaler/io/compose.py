"""The actuator of a fleet in containers: one service of a Compose file a pool, scaled by Compose itself.

A replica is named by the short id of its container, which is the container's host name, and Compose removes the highest
numbers first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.core.ordinals import count_after
from services.autoscaler.io.actuator import ActuatorFailed

_DEADLINE_S = 60.0
"""Starting a container takes a second or two; stopping one takes as long as its last streams."""


class _Container(msgspec.Struct, frozen=True):
    """As `ps` tells of it; the name ends with its number."""

    id: str = msgspec.field(name="ID")
    name: str = msgspec.field(name="Name")

    @property
    def replica_id(self) -> str:
        return self.id[:12]

    @property
    def number(self) -> int:
        return int(self.name.rpartition("-")[2])


class Compose:
    """`command` is Compose with the file and the project (`docker compose -f FILE -p PROJECT`); `services` is by pool.
    Pools without a service are left alone."""

    starts_merged = False

    def __init__(self, command: Sequence[str], services: Mapping[str, str]) -> None:
        self._command = tuple(command)
        self._services = dict(services)
        self._numbers: dict[str, dict[str, int]] = {}
        """Of each service's containers, as they were found last."""

    async def existing(self, pool: PoolSpec) -> frozenset[str] | None:
        service = self._services.get(pool.pool_id)
        return None if service is None else frozenset(await self._containers(service))

    def removal_order(self, pool: PoolSpec, existing: frozenset[str]) -> tuple[str, ...] | None:
        numbers = self._numbers.get(self._services.get(pool.pool_id, ""), {})
        return tuple(sorted(existing, key=lambda replica_id: numbers.get(replica_id, 0), reverse=True))

    async def apply(self, order: ScaleOrder) -> None:
        service = self._services.get(order.pool.pool_id)
        if service is None:
            return
        now = await self._containers(service)
        count = count_after(now, order.desired, order.remove)
        if count != len(now):
            await self._run(
                "up", "--detach", "--no-deps", "--no-recreate", "--no-build", "--scale", f"{service}={count}", service
            )

    async def _containers(self, service: str) -> list[str]:
        """By number. One that has ended for good is still one of Compose's: `up` would start it again."""
        said = await self._run("ps", "--all", "--format", "json", service)
        try:
            found = [msgspec.json.decode(line, type=_Container) for line in said.splitlines() if line.strip()]
            found.sort(key=lambda one: one.number)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ActuatorFailed(f"Compose says of {service} what nobody understands: {error}") from error
        self._numbers[service] = {one.replica_id: one.number for one in found}
        return [one.replica_id for one in found]

    async def _run(self, *words: str) -> bytes:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise ActuatorFailed(f"{self._command[0]} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(_DEADLINE_S):
                said, complained = await child.communicate()
        except TimeoutError as error:
            child.kill()
            await child.wait()
            raise ActuatorFailed(f"Compose has not ended {words[0]} after {_DEADLINE_S:.0f} s") from error
        if child.returncode:
            last = complained.decode(errors="replace").strip().rpartition("\n")[2]
            raise ActuatorFailed(f"Compose could not {words[0]}: {last}")
        return said
