"""Aliases: deploying a version to all or some sessions, going back, and taking a name away.

A version is in a slot on its owners before an alias means it: what is asked of replicas is asked between two
transactions, and the second one decides anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

import msgspec

from services.registry.core.deployment import alias_moves
from services.registry.core.deployment.aliases import REGISTRY, AliasChange, AliasState, Change, Denied
from services.registry.deployment import alias_decisions
from services.registry.deployment.alias_changes import write_change, write_removal
from services.registry.deployment.alias_decisions import Sight
from services.registry.deployment.residency import Residencies
from services.registry.deployment.wanted import want
from services.registry.io import adapter_rows, alias_rows, outbox_rows
from services.registry.io.alias_rows import AliasFilter, PastChange
from services.registry.io.database import Database
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

OPERATOR = "operator"
"""Who changes an alias if nobody says."""
_SALT_BYTES = 8
_MARGIN_S = 10.0
"""How much longer than the wait for replicas a version stays wanted without an alias."""

Decide = Callable[[Sight, Change], Awaitable[AliasChange | Denied]]

_log = get_logger(__name__)


class Aliasing:
    """Everything here may raise DatabaseUnavailable, or Collision if two create one alias at once; nothing
    was changed then. So it is after Denied."""

    def __init__(self, database: Database, clock: Clock, residencies: Residencies) -> None:
        self._database = database
        self._clock = clock
        self._residencies = residencies

    async def deploy(self, alias: str, adapter_id: str, *, change: Change) -> AliasState | Denied:
        """From now on the alias means this adapter; requests that run keep the one they began with."""

        async def decide(sight: Sight, asked: Change) -> AliasChange | Denied:
            return await alias_decisions.deployment(sight, alias, adapter_id, asked)

        return await self._move(decide, change)

    async def deploy_announced(self, adapter_id: str) -> AliasState | Denied:
        """Under the alias that an active adapter was announced with, unless that is decided otherwise by now."""

        async def decide(sight: Sight, asked: Change) -> AliasChange | Denied:
            return await alias_decisions.announced(sight, adapter_id, asked)

        return await self._move(decide, Change(actor=REGISTRY, reason=f"announced with {adapter_id}"))

    async def roll_back(self, alias: str, *, change: Change, kind: str = "rollback") -> AliasState | Denied:
        """The alias means again what it meant before its last change, if need be without waiting for replicas; of an
        alias with a split, every session does."""

        async def decide(sight: Sight, asked: Change) -> AliasChange | Denied:
            return await alias_decisions.retreat(sight, alias, asked, kind)

        return await self._move(decide, change, pinned=True, always=True)

    async def split(self, alias: str, adapter_id: str, percent: float, *, change: Change) -> AliasState | Denied:
        """So many per cent of the sessions mean this adapter from now on."""
        salt = secrets.token_hex(_SALT_BYTES)

        async def decide(sight: Sight, asked: Change) -> AliasChange | Denied:
            return await alias_decisions.split(sight, alias, (adapter_id, percent, salt), asked)

        return await self._move(decide, change, pinned=True)

    async def promote(self, alias: str, *, change: Change) -> AliasState | Denied:
        """All sessions mean the split's version from now on."""

        async def decide(sight: Sight, asked: Change) -> AliasChange | Denied:
            return await alias_decisions.promotion(sight, alias, asked)

        return await self._move(decide, change, pinned=True)

    async def unsplit(self, alias: str, *, change: Change) -> AliasState | Denied:
        """No session means the split's version any more."""

        async def decide(sight: Sight, asked: Change) -> AliasChange | Denied:
            return await alias_decisions.end_of_split(sight, alias, asked)

        return await self._move(decide, change, pinned=True, always=True)

    async def remove(self, alias: str, *, change: Change) -> AliasState | Denied:
        """The alias means nothing any more; what it meant last is returned. A split is not ended in passing."""
        async with self._database.write() as connection:
            current = await alias_rows.find(connection, alias, to_change=True)
            if (fault := alias_moves.expectation_fault(current, alias, change)) is not None:
                return fault
            if current is None:
                return alias_decisions.unknown_alias(alias)
            if (fault := alias_moves.split_fault(current, change)) is not None:
                return fault
            await write_removal(connection, current, change, self._clock.wall_s())
            return current

    async def find(self, alias: str) -> AliasState | None:
        async with self._database.read() as connection:
            return await alias_rows.find(connection, alias)

    async def listed(self, wanted: AliasFilter) -> list[AliasState]:
        async with self._database.read() as connection:
            return await alias_rows.listed(connection, wanted)

    async def history(self, alias: str, *, before: int | None, limit: int) -> list[PastChange]:
        """Newest first, also of an alias that is gone; `before` is the `row_id` that the page before ended with."""
        async with self._database.read() as connection:
            return await alias_rows.history(connection, alias, before=before, limit=limit)

    async def _move(
        self, decide: Decide, asked: Change, *, pinned: bool = False, always: bool = False
    ) -> AliasState | Denied:
        """Decide, make the version resident, decide again and write. `pinned`: what to move to depends on what the
        alias means now, so whoever changes it meanwhile wins. `always`: it goes through without replicas."""
        async with self._database.read() as connection:
            first = await decide(Sight(connection, to_change=False), asked)
        if isinstance(first, Denied) or not first.changed:
            return first if isinstance(first, Denied) else first.state
        if pinned and asked.if_match is None:
            asked = msgspec.structs.replace(asked, if_match=first.state.revision)
        if (fault := await self._fault_of_residency(first, hurried=always or asked.force)) is not None:
            return fault
        async with self._database.write() as connection:
            decided = await decide(Sight(connection, to_change=True), asked)
            if isinstance(decided, Denied):
                return decided
            return await write_change(connection, decided, asked, self._clock.wall_s())

    async def _fault_of_residency(self, decided: AliasChange, *, hurried: bool) -> Denied | None:
        """Why the version may not take over yet. With `hurried` it is tried for a moment, and never in the way."""
        policy, adapter_id = self._residencies.policy, decided.state.newest_adapter_id
        within_s = policy.short_deadline_s if hurried else policy.deadline_s
        async with self._database.write() as connection:
            now_s = self._clock.wall_s()
            notes = await want(connection, adapter_id, now_s + within_s + _MARGIN_S)
            await outbox_rows.append(connection, notes, now_s)
            adapter = await adapter_rows.find(connection, adapter_id)
        if adapter is None:
            return None  # the decision that follows says so
        found = await self._residencies.secure(adapter, within_s=within_s)
        _log.info("a version is to take over", adapter_id=adapter_id, ready=found.ok, reason=found.reason)
        if found.ok or hurried:
            return None
        message = f"Alias {decided.state.alias!r} stays as it is: {found.reason}."
        return Denied(kind="unavailable", code="not_resident", message=message)
